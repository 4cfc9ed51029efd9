"""What the command line asked for, with its defaults filled in."""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from radixd.gpu_pool.layout import pages_for_bytes
from radixd.gpu_pool.presets import PRESETS, load_geometry
from radixd.server.replay.faults import Faults
from radixd.server.replay.own_daemon import PoolChoice
from radixd.server.replay.workload import Workload, WorkloadChoice

POOL_BYTES = 2**30

META_TOKENS = 100_000_000
"""Without memory a pool may as well hold everything: the conversation trace has 1,411,425 distinct full pages."""

POOL_FLAGS = (
    "pools", "geometry", "device", "pool_tokens", "policy", "layout", "host_pages", "write_policy", "restart_every",
)  # fmt: skip

DEFAULTS: Mapping[str, object] = {
    "geometry": "glm-5.3",
    "policy": "priority",
    "layout": "page_first",
    "pool_tokens": None,
    "write_policy": "write_back",
    "restart_every": 0,
    "pools": 1,
    "seed": 0,
}

CONVERSATIONS: Mapping[str, object] = {
    **DEFAULTS,
    "requests": 420,
    "schedulers": 4,
    "decode": True,
    "device": "cpu",
    "kill_every": 150,
    "aborts": 10,
    "rollbacks": 10,
    "reconnects": 4,
    "preempt": 10,
    "host_pages": None,
}
"""Defaults of the built-in workload: everything happens at least once, a restart aside. The host holds another pool."""

TRACE: Mapping[str, object] = {
    **DEFAULTS,
    "requests": None,
    "schedulers": 1,
    "decode": False,
    "device": "meta",
    "kill_every": 0,
    "aborts": 0,
    "rollbacks": 0,
    "reconnects": 0,
    "preempt": 0,
    "host_pages": 0,
}
"""Defaults of a trace: its hits, exactly."""


@dataclass(frozen=True, slots=True)
class Options:
    """One run."""

    target: str | None
    """A running daemon; None: start one with a `pool` of each name."""
    pool_names: tuple[str, ...]
    """A single empty one: the only pool of the daemon at `target`."""
    pool: PoolChoice
    workload: WorkloadChoice
    import_from_peers: bool
    schedulers: int
    kill_every: int
    aborts: int
    rollbacks: int
    reconnects: int
    preempts: int
    restart_every: int
    report: Path | None

    @property
    def one_by_one(self) -> bool:
        """One scheduler a pool and prompts alone run in strict order: hits are then a property of the cache alone."""
        return self.schedulers == len(self.pool_names) and not self.workload.decode

    def choose_faults(self, workload: Workload) -> Faults:
        """Which of its requests go wrong. ValueError where too few can."""
        lengths = workload.output_lengths()
        return Faults.choose(
            lengths,
            aborts=self.aborts,
            rollbacks=self.rollbacks,
            preempts=self.preempts,
            seed=self.workload.seed,
        )

    @classmethod
    def read(cls, args: Namespace) -> Self:
        """The flags given, and the workload's defaults for the rest. ValueError names the flag at fault."""
        defaults = TRACE if args.trace else CONVERSATIONS
        given = {name: value for name, value in vars(args).items() if value is not None}
        useless = [f"--{name.replace('_', '-')}" for name in POOL_FLAGS if name in given and args.target]
        if useless:
            raise ValueError(f"{', '.join(useless)}: the daemon at --target is there already; leave it out")
        filled = Namespace(**{**defaults, **given})
        names = _pool_names(args.target, args.pool, filled.pools)
        filled.schedulers = given.get("schedulers", max(filled.schedulers, len(names)))
        if filled.import_from_peers and args.target is None and len(names) == 1:
            raise ValueError("--import-from-peers: a single pool has no peers; give --pools")
        if filled.schedulers < len(names):
            raise ValueError(f"--schedulers {filled.schedulers}: each of the {len(names)} pools needs one")
        if args.requests == "all":
            filled.requests = None
        if filled.requests is not None:  # few requests bear few faults
            few = filled.requests // 20
            filled.aborts = given.get("aborts", min(filled.aborts, few))
            filled.rollbacks = given.get("rollbacks", filled.decode * min(filled.rollbacks, few))
            filled.preempt = given.get("preempt", filled.decode * min(filled.preempt, few))
            # Half way, at least: a kill is due only while others are left to take over.
            filled.kill_every = given.get("kill_every", few and min(filled.kill_every, filled.requests // 2))
        return cls(
            target=args.target,
            pool_names=names,
            pool=_pool(filled),
            workload=WorkloadChoice(args.trace, filled.requests, filled.decode, filled.seed),
            import_from_peers=filled.import_from_peers,
            schedulers=filled.schedulers,
            kill_every=filled.kill_every,
            aborts=filled.aborts,
            rollbacks=filled.rollbacks,
            reconnects=filled.reconnects,
            preempts=filled.preempt,
            restart_every=filled.restart_every,
            report=args.report,
        )


def _pool_names(target: str | None, named: str | None, own: int) -> tuple[str, ...]:
    """Those of the daemon at `target` that are `named`, or `own` data-parallel ranks of a daemon of replay's own."""
    if target is None:
        if named is not None:
            raise ValueError(f"--pool {named}: for pools of the daemon at --target; replay's own has --pools of them")
        return tuple(f"dp{rank}" for rank in range(own))
    names = tuple((named or "").split(","))
    if len({*names}) < len(names) or (named is not None and not all(names)):
        raise ValueError(f"--pool {named}: give the name of each pool once, with commas between them")
    return names


def _pool(filled: Namespace) -> PoolChoice:
    tokens = filled.pool_tokens or _pool_tokens(filled.geometry, filled.device)
    if filled.host_pages is None:
        host_tokens = 0 if filled.device == "meta" else tokens
    else:
        host_tokens = filled.host_pages * load_geometry(filled.geometry).page_size
    return PoolChoice(
        geometry=filled.geometry if filled.geometry in PRESETS else str(Path(filled.geometry).resolve()),
        device=filled.device,
        tokens=tokens,
        policy=filled.policy,
        layout=filled.layout,
        host_tokens=host_tokens,
        write_policy=filled.write_policy,
        keep_state=filled.restart_every > 0,
    )


def _pool_tokens(geometry_name: str, device: str) -> int:
    if device == "meta":
        return META_TOKENS
    geometry = load_geometry(geometry_name)
    return pages_for_bytes(geometry, POOL_BYTES) * geometry.page_size
