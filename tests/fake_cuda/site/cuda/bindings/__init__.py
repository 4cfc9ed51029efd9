"""The fake's cuda.bindings: it has `runtime` alone. `cuda` itself stays a namespace package, as NVIDIA's is."""
