"""What `help` shows of a verb that is a Batch of one: its answer, not the operation that a Batch would give."""

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C", bound=Callable[..., object])


def show(call: C, signature: inspect.Signature) -> C:
    """`call`, which `help` and `inspect` take for what `signature` says."""
    call.__dict__["__signature__"] = signature
    return call


def answered(build: Callable[..., object], lease: str, given: int = 1) -> inspect.Signature:
    """The signature of the Batch's `build` as a method that waits for the answer.

    Args:
        lease: name of the lease class that stands for the Batch's type variable.
        given: how many leading parameters the method has of itself: the Batch, perhaps the lease.
    """
    batch = inspect.signature(build)
    own, *arguments = batch.parameters.values()
    answer = re.fullmatch(r"Operation\[(.*)\]", batch.return_annotation)
    if answer is None:
        raise TypeError(f"{build.__name__} gives no Operation, but {batch.return_annotation}")
    return batch.replace(
        parameters=[own, *(_named(argument, lease) for argument in arguments[given - 1 :])],
        return_annotation=_bound(answer[1], lease),
    )


def _named(argument: inspect.Parameter, lease: str) -> inspect.Parameter:
    return argument.replace(annotation=_bound(argument.annotation, lease))


def _bound(annotation: str, lease: str) -> str:
    return re.sub(r"\bL\b", lease, annotation)
