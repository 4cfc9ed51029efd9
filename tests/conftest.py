"""What all tests may use."""

# In this order: the first puts the fake CUDA runtime on the path, before torch looks for NVIDIA's.
pytest_plugins = ["tests.fake_cuda.plugin", "tests.both_memories"]
