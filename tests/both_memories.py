"""The pytest plugin of tests that run on host memory and on GPUs alike."""

import pytest

from tests import two_tiers
from tests.e2e.daemon_process import DEVICE
from tests.fake_cuda.plugin import MakeFakeGpus


@pytest.fixture(params=["host", "gpu"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test twice: its pools in host memory, as it says, and on fake GPUs unless it is about host memory."""
    if request.param == "gpu":
        if request.node.get_closest_marker("host_memory"):
            pytest.skip("what it looks at is host memory's alone")
        make: MakeFakeGpus = request.getfixturevalue("make_fake_gpus")
        gpus = make(2)
        monkeypatch.setattr(two_tiers, "GPUS", gpus)
        monkeypatch.setenv("PYTHONPATH", gpus.env()["PYTHONPATH"])
        monkeypatch.setenv(DEVICE, "cuda")
    return str(request.param)
