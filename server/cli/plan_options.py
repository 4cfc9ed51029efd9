"""From the flags of `radixd plan` to plans: every mistake is told in one line."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.capacity import pool_bytes
from radixd.gpu_pool.budget.cost import MAX_DCP, Cost, cost_of, with_index_layers, with_page_size
from radixd.gpu_pool.budget.plan import Model, Plan, PoolSize
from radixd.gpu_pool.budget.scratch import logits_budget
from radixd.gpu_pool.geometry import MAX_LAYERS, MAX_PAGE_SIZE
from radixd.gpu_pool.hf_config import INDEX_HEADS
from radixd.gpu_pool.layout import MAX_STRIDE_MULTIPLE, usable_pages, whole_pages
from radixd.gpu_pool.presets import PRESETS, load_geometry, load_indexer_heads
from radixd.server.byte_text import both_units
from radixd.server.cli import plan_values
from radixd.server.cli.plan_question import QUESTIONS, Question, read_question
from radixd.server.config import PoolConfig, values
from radixd.server.config.file import read_config
from radixd.server.config.table import ConfigError, Table

PRESET = "glm-5.3"
FRACTION = 0.9


@dataclass(frozen=True)
class Memory:
    """A pool's size as it was typed; 0: not given."""

    tokens: int
    nbytes: int
    gpu_bytes: int
    fraction: float
    weights: int
    scratch: int
    host_tokens: int
    host_bytes: int

    @property
    def logits_budget(self) -> int | None:
        """What one matrix of logits may take, where the GPU is known."""
        return logits_budget(self.gpu_bytes, self.fraction) if self.gpu_bytes else None

    def pool(self, model: Model, question: Question) -> PoolSize | None:
        """The pool on one device; None where no size was given."""
        cost = model.cost
        if self.tokens:
            pages = whole_pages(self.tokens, cost.page_tokens)
            return PoolSize(cost, pages, (pages + 1) * cost.page_stride, f"{self.tokens:,} tokens")
        if self.nbytes:
            return PoolSize(cost, usable_pages(self.nbytes, cost.page_stride), self.nbytes, both_units(self.nbytes))
        if not self.gpu_bytes:
            return None
        if self.weights >= self.gpu_bytes:
            gpu = both_units(self.gpu_bytes)
            raise BudgetError(
                f"--weights: {both_units(self.weights)} leave nothing of a GPU of {gpu}: give one GPU's share"
            )
        scratch = question.scratch(model, self.logits_budget)
        left_free = self.scratch or (scratch.nbytes if scratch else 0)
        nbytes = pool_bytes(self.gpu_bytes - self.weights, self.fraction, left_free)
        weights = f"{both_units(self.weights)} of weights and " if self.weights else ""
        untold = "" if self.weights else " (no weights given: counted as 0; say --weights)"
        origin = (
            f"{self.fraction:g} of what a GPU of {both_units(self.gpu_bytes)} has beside {weights}"
            f"{both_units(left_free)} of scratch{untold}"
        )
        return PoolSize(cost, usable_pages(nbytes, cost.page_stride), nbytes, origin)

    def host_pages(self, cost: Cost) -> int:
        """Pages of the host tier, which has a page 0 too where it is sized from bytes."""
        if self.host_tokens:
            return whole_pages(self.host_tokens, cost.page_tokens)
        return usable_pages(self.host_bytes, cost.page_bytes) if self.host_bytes else 0


def read_plans(flags: Mapping[str, object]) -> tuple[Plan, ...]:
    """One plan; two with `compare`; one for each pool of a configuration.

    Args:
        flags: names without the leading dashes, and the text that was typed.

    Raises a ValueError; a ConfigError holds several mistakes.
    """
    if "config" in flags:
        return _config_plans(flags)
    given = {name: value for name, value in flags.items() if name != "compare"}
    if "compare" not in flags:
        return (_plan(given),)
    changed = plan_values.changes(flags, "compare", "--")
    return _plan(given), _plan({**given, **changed})


def _plan(flags: Mapping[str, object]) -> Plan:
    question = read_question(flags)
    table = Table({name: value for name, value in flags.items() if name not in QUESTIONS}, "--")
    memory = _memory(table)
    if question.admit and not (memory.tokens or memory.nbytes or memory.gpu_bytes):
        table.error("--admit: into which pool? Give --tokens, --bytes or --gpu-memory")
    model = _model(table)
    pool = memory.pool(model, question)
    return question.plan(model, pool, memory.host_pages(model.cost), memory.logits_budget)


def _model(table: Table) -> Model:
    named = table.get("preset", lambda d, k, w: str(d[k]), PRESET)
    config = table.get("from-config", plan_values.file_name, "")
    page_size = table.get("page-size", plan_values.whole(1, MAX_PAGE_SIZE), 0)
    indexer = table.get("indexer", plan_values.whole(1, MAX_LAYERS), 0)
    mtp = table.get("mtp", plan_values.whole(0, MAX_LAYERS), 0)
    kpool = table.get("kpool", plan_values.whole(1, MAX_PAGE_SIZE), 1)
    dcp = table.get("dcp", plan_values.whole(1, MAX_DCP), 1)
    multiple = table.get("stride-multiple", plan_values.whole(1, MAX_STRIDE_MULTIPLE), 1)
    if config and "preset" in table:
        table.error("--from-config: give either --preset or --from-config")
    if not config and named not in PRESETS:
        table.error(f"--preset: {named!r:.64} is none of {', '.join(PRESETS)}; a file is given by --from-config")
    table.finish()
    geometry = load_geometry(config or named)
    if page_size:
        geometry = with_page_size(geometry, page_size)
    if indexer:
        geometry = with_index_layers(geometry, indexer)
    return Model(geometry, cost_of(geometry, mtp, kpool, dcp, multiple), load_indexer_heads(config or named), dcp)


def _memory(table: Table) -> Memory:
    sizes = [name for name in ("tokens", "bytes", "gpu-memory") if name in table]
    if len(sizes) > 1:
        table.error(f"--{sizes[1]}: give one of --tokens, --bytes and --gpu-memory")
    if "gpu-memory" not in table:
        for name in ("fraction", "weights", "scratch"):
            if name in table:
                table.error(f"--{name}: of which GPU? Give --gpu-memory")
    if "host-tokens" in table and "host-bytes" in table:
        table.error("--host-tokens: give either --host-tokens or --host-bytes")
    return Memory(
        tokens=table.get("tokens", plan_values.tokens, 0),
        nbytes=table.get("bytes", values.size, 0),
        gpu_bytes=table.get("gpu-memory", plan_values.gpu_size, 0),
        fraction=table.get("fraction", plan_values.fraction, FRACTION),
        weights=table.get("weights", plan_values.gpu_size, 0),
        scratch=table.get("scratch", values.size, 0),
        host_tokens=table.get("host-tokens", plan_values.tokens, 0),
        host_bytes=table.get("host-bytes", values.size, 0),
    )


def _config_plans(flags: Mapping[str, object]) -> tuple[Plan, ...]:
    others = [name for name in flags if name not in (*QUESTIONS, "config")]
    if others:
        raise ConfigError(*(f"--{name}: leave it out: the file of --config says what the pools are" for name in others))
    path = Path(str(flags["config"]))
    try:
        pools = read_config(path).pools
    except ConfigError as error:
        prefix = f"{path}: "  # a file that cannot be read is named already
        lines = (line if line.startswith(prefix) else prefix + line for line in error.errors)
        raise ConfigError(*lines) from error
    unsized = [f"pool {pool.name}: {pool.unsized}; plan it with --gpu-memory" for pool in pools if pool.unsized]
    if unsized:
        raise ConfigError(*unsized)
    return tuple(_config_plan(flags, pool) for pool in pools)


def _config_plan(flags: Mapping[str, object], pool: PoolConfig) -> Plan:
    layout, geometry = pool.layout, pool.layout.geometry
    question = read_question(flags, (pool.max_context,)) if pool.max_context else read_question(flags)
    cost = cost_of(geometry, stride_multiple=layout.stride_multiple)
    size = PoolSize(cost, layout.num_pages, layout.nbytes, f"pool {pool.name} of the configuration")
    heads = load_indexer_heads(geometry.name) if geometry.name in PRESETS else INDEX_HEADS
    return question.plan(Model(geometry, cost, heads), size, pool.host.pages, None)
