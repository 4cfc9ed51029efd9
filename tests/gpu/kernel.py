"""A kernel that writes late, as an engine's does: its bytes are there once the stream has come to it."""

import torch
from cuda.bindings import runtime as cudart

CYCLES = 600_000_000
"""About a third of a second on an H200; the fake's streams are late by themselves."""


class LateStream:
    """A stream of this process's own."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        assert not cudart.cudaSetDevice(ordinal)[0]
        status, self._stream = cudart.cudaStreamCreateWithFlags(cudart.cudaStreamNonBlocking)
        assert not status

    def fill(self, rows: torch.Tensor, value: int) -> None:
        """Enqueue: wait a while, then set each byte of `rows`, a contiguous tensor of the pool."""
        assert rows.is_contiguous()
        assert not cudart.cudaSetDevice(self.ordinal)[0]
        if torch.cuda.is_available():
            with torch.cuda.stream(torch.cuda.ExternalStream(int(self._stream), device=self.ordinal)):
                torch.cuda._sleep(CYCLES)
        nbytes = rows.numel() * rows.element_size()
        assert not cudart.cudaMemsetAsync(rows.data_ptr(), value, nbytes, self._stream)[0]

    def finish(self) -> None:
        """Wait, as an engine does before it says that a step is completed."""
        assert not cudart.cudaStreamSynchronize(self._stream)[0]

    def close(self) -> None:
        """Finish, and give up the stream."""
        self.finish()
        assert not cudart.cudaStreamDestroy(self._stream)[0]
