"""From `radixd doctor --expect` to an expectation, by `radixd plan`'s own reader."""

from radixd.gpu_pool.presets import PRESETS
from radixd.server.cli import plan_values
from radixd.server.cli.plan_options import read_plans
from radixd.server.config.table import ConfigError
from radixd.server.doctor.expectation import Expectation

PLAN_FLAGS = (
    "preset", "from-config", "indexer", "mtp", "kpool", "dcp", "page-size", "stride-multiple",
    "tokens", "bytes", "gpu-memory", "fraction", "weights", "scratch",
    "context", "batch", "drafts", "max-batched-tokens",
)  # fmt: skip


def read_expectation(text: str) -> Expectation:
    """Raises a ValueError of one line for each mistake."""
    data = {"expect": text}
    if text in PRESETS:
        return _planned({"preset": text})
    if "=" in text:
        flags = plan_values.changes(data, "expect", "--")
        unknown = [name for name in flags if name not in PLAN_FLAGS]
        if unknown:
            raise ConfigError(f"--expect: {unknown[0]!r:.64} is no flag of a plan; known are {', '.join(PLAN_FLAGS)}")
        return _planned(dict(flags))
    try:
        return Expectation(tokens=plan_values.tokens(data, "expect", "--"))
    except ValueError as error:
        raise ConfigError(f"{error}; or a preset ({', '.join(PRESETS)}), or FLAG=VALUE") from None


def _planned(flags: dict[str, object]) -> Expectation:
    try:
        (plan,) = read_plans(flags)
    except ConfigError as error:
        raise ConfigError(*(line.replace("--", "--expect ", 1) for line in error.errors)) from error
    return Expectation(cost=plan.model.cost, pool=plan.pool)
