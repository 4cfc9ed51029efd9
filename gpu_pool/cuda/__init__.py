"""GPU memory of radixd's own: allocated outside any framework, shared by IPC handle, copied on streams of its own."""
