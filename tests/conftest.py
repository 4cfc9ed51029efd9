"""What all tests may use."""

from pathlib import Path

import pytest

# In this order: the first puts the fake CUDA runtime on the path, before torch looks for NVIDIA's.
pytest_plugins = ["tests.fake_cuda.plugin", "tests.both_memories"]

TESTS = Path(__file__).parent
ON_GPUS = (TESTS / "unit" / "cuda", TESTS / "unit" / "gpu_pool", TESTS / "gpu")
"""What coverage is measured by: tracing all others would only slow them down."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Trace the tests of what runs on GPUs."""
    for item in items:
        if not any(item.path.is_relative_to(folder) for folder in ON_GPUS):
            item.add_marker(pytest.mark.no_cover)
