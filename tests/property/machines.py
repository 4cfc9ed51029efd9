"""How the state machines are run."""

import os

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

STEPS = 50


def run_machine(machine: type[RuleBasedStateMachine], examples: int, **attributes: object) -> None:
    """Run `machine` with class attributes of its own, `examples` times $RADIXD_PROPERTY_SCALE (1)."""
    scale = float(os.environ.get("RADIXD_PROPERTY_SCALE", "1"))
    profile = settings(
        max_examples=max(1, int(examples * scale)),
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
    )
    # What a machine draws follows from its name.
    name = "_".join((machine.__name__, *map(str, attributes.values())))
    run_state_machine_as_test(type(name, (machine,), attributes), settings=profile)
