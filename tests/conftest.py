"""What all tests may use."""

pytest_plugins = ["tests.fake_cuda.plugin"]
