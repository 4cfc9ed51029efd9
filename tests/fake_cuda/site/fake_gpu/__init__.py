"""A machine of CUDA GPUs made of files and threads: what stands behind the fake cuda.bindings.runtime."""
