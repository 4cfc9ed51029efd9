"""The tree part: radixd's cache core, in process, beside SGLang's prefix caches, in theirs."""

from collections.abc import Iterator, Mapping, Sequence

from bench.footprint import bytes_per_token
from bench.sampling import Side, medians
from bench.sglang_reference.peer import SglangPeer
from bench.table import Row, size
from bench.tree_cases import (
    Case,
    Evict,
    EvictAndInsert,
    FlatCompare,
    FullPool,
    Insert,
    Lock,
    Match,
    Prefill,
    Unlock,
    sampler,
)
from bench.workload import PAGE_TOKENS

MI = 2**20
MATCHES = tuple((tokens, nodes) for tokens in (2**10, 2**13, 2**17, MI) for nodes in (1, 10, 100))
INSERTS = (2**10, 2**17, MI)
LEAVES = (1_000, 4_000, 10_000, 100_000, 300_000)
NODE_TOKENS = (64, 256)
DEPTH = 100
SEED = 5

RUST = "unified-rust"
# Beyond these many leaves SGLang's trees take longer to fill, or to evict from, than a run should.
RUST_LEAVES = 100_000
PYTHON_LEAVES = 10_000


class TreePart:
    """Measures its rows one after another, with `rounds` turns for each side of a row."""

    def __init__(self, sglang: SglangPeer | None, rounds: int, quick: bool) -> None:
        self._sglang = sglang
        self._rounds = rounds
        self._matches = [case for case in MATCHES if not quick or case[1] != 10]
        self._leaves = [leaves for leaves in LEAVES if not quick or leaves <= PYTHON_LEAVES]

    def rows(self) -> Iterator[Row]:
        """All rows."""
        yield from self._footprints()
        for tokens, nodes in self._matches:
            if nodes <= tokens // PAGE_TOKENS:
                name = f"match {label(tokens)}, nodes: {nodes}"
                yield self._compare(name, Match(tokens, nodes), "match", tokens=tokens, nodes=nodes)
        yield self._flat_compare(MI)
        for tokens in INSERTS:
            yield self._compare(f"insert {label(tokens)}, all new", Insert(tokens), "insert", tokens=tokens)
        yield self._compare(f"lock, depth {DEPTH}", Lock(DEPTH), "lock", depth=DEPTH)
        yield self._compare(f"unlock, depth {DEPTH}", Unlock(DEPTH), "unlock", depth=DEPTH)
        yield self._compare("a whole request, pool of 1.1M tokens", Prefill(SEED), "prefill", target=1, seed=SEED)
        pools = {leaves: FullPool(leaves) for leaves in self._leaves}
        for leaves, pool in pools.items():
            yield self._compare(f"evict a page of {leaves:,} leaves", Evict(pool), "evict", leaves=leaves)
        yield from self._growth("evict a page", {leaves: sampler(Evict(pool)) for leaves, pool in pools.items()})
        cycles = {leaves: sampler(EvictAndInsert(pool)) for leaves, pool in pools.items()}
        yield from self._growth("evict 1, insert 1", cycles)

    def _trees(self, leaves: int) -> Sequence[str]:
        if self._sglang is None or leaves > RUST_LEAVES:
            return ()
        return self._sglang.trees if leaves <= PYTHON_LEAVES else (RUST,)

    def _compare(self, name: str, case: Case, op: str, target: float | None = None, **sizes: int) -> Row:
        """A case beside the same one of SGLang's trees."""
        opened = {}
        if self._sglang is not None:
            opened = {tree: self._sglang.open(op, tree, **sizes) for tree in self._trees(sizes.get("leaves", 0))}
        sides = {"radixd": sampler(case), **{tree: theirs.sample for tree, theirs in opened.items()}}
        taken = medians(sides, self._rounds)
        for theirs in opened.values():
            theirs.close()
        return Row(name, taken.pop("radixd"), taken.pop(RUST, None), RUST, target, taken)

    def _flat_compare(self, tokens: int) -> Row:
        sides = {"radixd": sampler(Match(tokens, 1)), "flat": sampler(FlatCompare(tokens))}
        taken = medians(sides, self._rounds)
        return Row(f"match {label(tokens)}, nodes: 1", taken["radixd"], taken["flat"], "bytes == bytes", target=2)

    def _growth(self, name: str, sides: Mapping[int, Side]) -> Iterator[Row]:
        """How the cost grows with the leaves: 100 times as many must not cost 3 times as much."""
        taken = medians({str(leaves): side for leaves, side in sides.items()}, self._rounds)
        for many, few in ((100_000, 1_000), (300_000, 4_000)):
            if many in sides:
                case = f"{name} of {many:,} leaves"
                yield Row(case, taken[str(many)], taken[str(few)], f"radixd, {few:,} leaves", target=3)

    def _footprints(self) -> Iterator[Row]:
        for tokens in NODE_TOKENS:
            theirs = sglang_bytes_per_token(RUST, tokens) if self._sglang is not None else None
            case = f"memory a cached token, nodes of {tokens}"
            yield Row(case, bytes_per_token(tokens), theirs, RUST, form=size)


def sglang_bytes_per_token(tree: str, node_tokens: int) -> float:
    """Asked of a fresh process each time: memory that an earlier case gave back would hide the growth."""
    with SglangPeer() as fresh:
        return fresh.ask("bytes_per_token", tree=tree, node_tokens=node_tokens)["bytes"]


def label(tokens: int) -> str:
    """8K, 1M: binary thousands of tokens."""
    return f"{tokens // MI}M" if tokens >= MI else f"{tokens // 2**10}K"
