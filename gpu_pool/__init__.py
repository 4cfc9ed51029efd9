"""Pool memory: geometry, layout, slots, device and host memory, copies."""
