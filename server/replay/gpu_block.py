"""A block of slots on a GPU: kernels write and compare it there, in two or three short launches a page."""

import numpy as np
import torch

from radixd.gpu_pool.views import WORDS
from radixd.server.replay.fingerprint import Seeds
from radixd.server.replay.slot_block import SlotBlock


class GpuBlock:
    """In `buffer`, all of a device's memory, flat uint8: see BlockBytes. Writes are queued on the current stream."""

    def __init__(self, place: SlotBlock, buffer: torch.Tensor) -> None:
        self.place = place
        self._device, size = buffer.device, place.word_bytes
        words = buffer[: buffer.numel() // size * size].view(WORDS[size])
        strides = [stride // size for stride in place.strides]
        self._memory = words.as_strided(place.shape, strides, place.offset // size)
        self._salts = self._words(place.salts)

    def write(self, page: int, first: int, seeds: Seeds) -> None:
        """See BlockBytes."""
        target = self._memory[:, page, first : first + seeds.size]
        torch.bitwise_xor(self._words(seeds[None, :, None]), self._salts, out=target)

    def first_wrong(self, page: int, first: int, seeds: Seeds) -> tuple[int, int] | None:
        """See BlockBytes."""
        held = self._memory[:, page, first : first + seeds.size]
        due = self._words(seeds[None, :, None]) ^ self._salts
        if torch.equal(held, due):
            return None
        layer, token, _ = (held != due).nonzero()[0].tolist()
        return layer, token

    def synchronize(self) -> None:
        """See BlockBytes."""
        torch.cuda.synchronize(self._device)

    def _words(self, values: Seeds) -> torch.Tensor:
        """Their low bits."""
        return torch.from_numpy(values.view(np.int64)).to(self._device).to(WORDS[self.place.word_bytes])
