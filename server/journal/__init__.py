"""The crash-safe journal of a host tier: which of its pages hold which prefix, as records in a file beside the data."""
