"""What all tests may use."""

from pathlib import Path

import pytest
from hypothesis import settings

# In this order: the first puts the fake CUDA runtime on the path, before torch looks for NVIDIA's.
pytest_plugins = ["tests.fake_cuda.plugin", "tests.both_memories"]

TESTS = Path(__file__).parent
ON_GPUS = (TESTS / "unit" / "cuda", TESTS / "unit" / "gpu_pool", TESTS / "gpu")
"""What coverage is measured by: tracing all others would only slow them down."""

# The same examples in every run, so that what fails is what a change has broken. To look for others:
# RADIXD_PROPERTY_SCALE=20 pytest tests/property --hypothesis-profile=explore
settings.register_profile("same", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Trace the tests of what runs on GPUs, and run them first: a module's own lines run at its first import."""
    items.sort(key=lambda item: not _traced(item))
    for item in items:
        if not _traced(item):
            item.add_marker(pytest.mark.no_cover)


def _traced(item: pytest.Item) -> bool:
    return any(item.path.is_relative_to(folder) for folder in ON_GPUS)
