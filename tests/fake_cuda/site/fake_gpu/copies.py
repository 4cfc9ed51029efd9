"""How copies are checked when they are asked for, before a stream gets them."""

from collections.abc import Sequence

from fake_gpu import mapping
from fake_gpu.address_space import AddressSpace, Region
from fake_gpu.enums import cudaMemcpyKind
from fake_gpu.errors import cudaError_t
from fake_gpu.work import Copy, Piece, Range

K = cudaMemcpyKind
SIDES = {
    K.cudaMemcpyHostToHost: (False, False),
    K.cudaMemcpyHostToDevice: (True, False),
    K.cudaMemcpyDeviceToHost: (False, True),
    K.cudaMemcpyDeviceToDevice: (True, True),
}
"""Whether target and source are device memory."""


class Copies:
    """Makes copies of which every piece lies in memory that CUDA may touch."""

    def __init__(self, space: AddressSpace) -> None:
        self._space = space

    def asynchronous(self, call: str, kind: cudaMemcpyKind, pieces: Sequence[Piece]) -> Copy:
        """Host memory must be registered."""
        for piece in pieces:
            for name, (start, end) in (("target", piece.target), ("source", piece.source)):
                if self._end(call, kind, name, start, end - start) is None:
                    raise self._space.wrong(
                        f"{call}: the {name}, {start:#x}, is neither device memory nor registered host memory"
                    )
        self._check_disjoint(call, pieces)
        return Copy(self._space, call, pieces)

    def synchronous(self, call: str, kind: cudaMemcpyKind, piece: Piece) -> tuple[Copy, bool]:
        """Any mapped host memory will do. Also whether the host need not wait: both ends are device memory."""
        both_on_device = True
        for name, (start, end) in (("target", piece.target), ("source", piece.source)):
            region = self._end(call, kind, name, start, end - start)
            if region is None and not mapping.mapped(start, end - start):
                raise self._space.wrong(f"{call}: the {name}, {start:#x}, is no memory of this process")
            both_on_device &= region is not None and region.on_device
        self._check_disjoint(call, [piece])
        return Copy(self._space, call, [piece], pageable=True), both_on_device

    def on_devices(self, call: str, piece: Piece, target: int, source: int) -> Copy:
        """Each end on the device that was named, by ordinal."""
        for name, (start, end), ordinal in (("target", piece.target, target), ("source", piece.source, source)):
            region = self._space.require_device(start, end - start, call)
            if region.device is None or region.device.ordinal != ordinal:
                raise self._space.wrong(f"{call}: the {name}, {start:#x}, is not on device {ordinal}")
        return self.asynchronous(call, K.cudaMemcpyDeviceToDevice, [piece])

    def _end(self, call: str, kind: cudaMemcpyKind, name: str, start: int, size: int) -> Region | None:
        region = self._space.require(start, size, call)
        if kind in SIDES:
            expected = SIDES[kind][0 if name == "target" else 1]
            if (region is not None and region.on_device) is not expected:
                raise self._space.wrong(
                    f"{call}: {kind.name} does not fit the {name}, {start:#x}",
                    cudaError_t.cudaErrorInvalidMemcpyDirection,
                )
        return region

    def _check_disjoint(self, call: str, pieces: Sequence[Piece]) -> None:
        """No byte written may be read or written by another piece, nor by its own source."""
        spans: list[tuple[Range, bool]] = [(piece.target, True) for piece in pieces]
        spans += [(piece.source, False) for piece in pieces]
        if any(piece.height > 1 for piece in pieces):
            return
        furthest, furthest_write = 0, 0
        for (start, end), written in sorted(spans):
            if start < (furthest if written else furthest_write):
                raise self._space.wrong(
                    f"{call}: {start:#x} is written by one copy and touched by another, without order"
                )
            furthest = max(furthest, end)
            furthest_write = max(furthest_write, end) if written else furthest_write
