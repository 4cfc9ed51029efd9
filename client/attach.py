"""Maps a pool's memory into this process, as torch views. The only module of the client that needs torch.

A worker needs no gRPC: the scheduler sends it `session.ticket()`, and it calls `attach(ticket)`. Attach after any
fork, never before: a forked child holds the mapping and the connection too, and keeps the session alive.
"""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from radixd.client.connection import AttachConnection, connect
from radixd.client.errors import CannotMap, RadixError, StaleEpoch
from radixd.client.ticket import AttachTicket
from radixd.gpu_pool.attach_wire import Role

try:
    import torch
except ImportError as error:
    raise ImportError(
        "attaching to a pool needs torch: install radixd with its extra `attach`, or torch itself"
    ) from error

from radixd.gpu_pool.handle import Handle
from radixd.gpu_pool.layout import Layout
from radixd.gpu_pool.mapping import MappingError, map_buffer
from radixd.gpu_pool.views import PoolViews, torch_views

if TYPE_CHECKING:
    from radixd.gpu_pool.cuda.attached import AttachedGpu

_open: WeakSet["Attachment"] = WeakSet()
_open_lock = threading.Lock()


class Attachment:
    """A pool's memory in this process: one set of views for each device (one a tensor-parallel rank).

    Views are valid until the session ends or the daemon restarts: then `views` raises what happened. Tensors taken
    before that still point at the old memory; drop them, nothing may be written through them. They keep the memory
    mapped, and on a GPU taken: after a daemon's restart it has no room for a new pool until the last one is gone.
    """

    def __init__(self, connection: AttachConnection, attach_socket: str) -> None:
        self._connection: AttachConnection | None = connection
        self._gpus: list[AttachedGpu] = []
        self._views: tuple[PoolViews, ...] = ()
        self._void: Exception | None = None
        self.attach_socket = attach_socket
        self.epoch = connection.reply.epoch
        self.layout: Layout = connection.reply.layout
        """Where every byte lies."""

    @property
    def views(self) -> tuple[PoolViews, ...]:
        """One for each device that was asked for. Raises the session's end, or RuntimeError after `close`.

        Also to be read alone: neither shared memory nor CUDA keeps a process from writing where it may only read.
        """
        if self._void is not None:
            raise self._void
        return self._views

    def invalidate(self, error: RadixError) -> None:
        """The session has ended: from now on `views` raises `error`. The connection stays: the mapping does too."""
        if self._void is None:
            self._void = error

    def close(self) -> None:
        """Drop the views, wait for the GPUs, unmap, then end the connection. Idempotent.

        Drop every tensor taken from the views first: a ResourceWarning tells of those that keep GPU memory taken, and
        with it the connection, by which the daemon knows that it is.
        """
        if self._void is None:
            self._void = RuntimeError("this attachment was closed: attach again")
        self._views = ()
        while self._gpus:
            self._gpus.pop().close()
        self._connection = None  # which mappings that are left hold: it ends with the last one

    def _map(self, devices: Sequence[Handle], ranks: Sequence[int]) -> None:
        if any(not 0 <= rank < len(devices) for rank in ranks):
            raise ValueError(f"ranks {list(ranks)}: the pool has devices 0 to {len(devices) - 1}")
        try:
            for rank in ranks:
                self._views += (torch_views(self._buffer(devices[rank]), self.layout),)
        except MappingError as error:
            raise CannotMap(str(error)) from error

    def _buffer(self, handle: Handle) -> torch.Tensor:
        """Flat uint8; on torch's meta device for a pool without memory."""
        if handle.gpu is not None:
            from radixd.gpu_pool.cuda.attached import AttachedGpu

            self._gpus.append(AttachedGpu(handle.gpu, handle.nbytes, keep=self._connection))
            return self._gpus[-1].buffer
        if handle.fd is not None:
            return map_buffer(handle.fd, handle.nbytes)
        return torch.empty(handle.nbytes, dtype=torch.uint8, device="meta")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attach(ticket: AttachTicket, role: Role = "worker", ranks: Sequence[int] | None = None) -> Attachment:
    """Attach this process in the ticket's session's name and map the pool.

    Attachments of this process to an earlier daemon on the same socket are closed first: their memory takes room.

    Args:
        ranks: which of the pool's devices to map, in this order; None for all. A worker that sees one GPU maps one.

    Raises as `connection.connect` does; CannotMap, naming the likely setting; ValueError for a rank that is not there.
    """
    _end_earlier(ticket)
    connection = connect(ticket, role)
    attachment, devices = Attachment(connection, ticket.attach_socket), connection.reply.devices
    try:
        attachment._map(devices, range(len(devices)) if ranks is None else ranks)
    except BaseException:
        attachment.close()
        raise
    finally:
        connection.close_handles()  # mappings made from them stay
        del connection  # an exception that is kept would keep it open
    with _open_lock:
        _open.add(attachment)
    return attachment


def _end_earlier(ticket: AttachTicket) -> None:
    with _open_lock:
        earlier = [it for it in _open if it.attach_socket == ticket.attach_socket and it.epoch < ticket.epoch]
        _open.difference_update(earlier)
    for attachment in earlier:
        attachment.invalidate(StaleEpoch("the daemon has restarted since this attachment was made: attach again"))
        attachment.close()
