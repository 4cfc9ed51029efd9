"""The pytest plugin of the fake CUDA runtime: puts it on the import path, and makes GPUs for tests.

With RADIXD_REAL_CUDA in the environment the real bindings stay: for tests that need a card.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.fake_cuda.control import GIB, SITE, FakeGpus

if "RADIXD_REAL_CUDA" in os.environ:
    sys.path.remove(str(SITE))


class MakeFakeGpus(Protocol):
    """Makes a machine's GPUs; see FakeGpus."""

    def __call__(
        self,
        count: int = 1,
        memory: int = GIB,
        delay_s: float = 0.002,
        batch_memcpy: bool = True,
        attributes: Mapping[str, int] | None = None,
    ) -> FakeGpus: ...


@pytest.fixture
def make_fake_gpus() -> Iterator[MakeFakeGpus]:
    """Makes GPUs, one machine a test; violations and leaks, in any process, fail the test when it ends."""
    with ExitStack() as machines:

        def make(
            count: int = 1,
            memory: int = GIB,
            delay_s: float = 0.002,
            batch_memcpy: bool = True,
            attributes: Mapping[str, int] | None = None,
        ) -> FakeGpus:
            gpus = machines.enter_context(FakeGpus(count, memory, delay_s, batch_memcpy, attributes))
            machines.callback(_check, gpus)
            return gpus

        yield make


@pytest.fixture
def fake_gpus(make_fake_gpus: MakeFakeGpus) -> FakeGpus:
    """Two GPUs of 1 GiB."""
    return make_fake_gpus(2)


def _check(gpus: FakeGpus) -> None:
    gpus.leave()
    wrong = [*gpus.violations(), *(f"{leak} (leak)" for leak in gpus.leaks())]
    if wrong:
        pytest.fail("the program misused CUDA:\n" + "\n".join(wrong), pytrace=False)
