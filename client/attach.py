"""Maps a pool's memory into this process, as torch views. The only module of the client that needs torch.

A worker needs no gRPC: the scheduler sends it `session.ticket()`, and it calls `attach(ticket)`. Attach after any
fork, never before: a forked child holds the mapping and the connection too, and keeps the session alive.
"""

from types import TracebackType
from typing import Self

from radixd.client.connection import AttachConnection, connect
from radixd.client.errors import RadixError
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
from radixd.gpu_pool.mapping import map_buffer
from radixd.gpu_pool.views import PoolViews, torch_views


class Attachment:
    """A pool's memory in this process: one set of views for each device (one a tensor-parallel rank).

    Views are valid until the session ends or the daemon restarts: then `views` raises what happened. Tensors taken
    before that still point at the old memory; drop them, nothing may be written through them.
    """

    def __init__(self, connection: AttachConnection, buffers: tuple[torch.Tensor, ...]) -> None:
        self._connection = connection
        self._views = tuple(torch_views(buffer, connection.reply.layout) for buffer in buffers)
        self._void: Exception | None = None
        self.epoch = connection.reply.epoch

    @property
    def layout(self) -> Layout:
        """Where every byte lies."""
        return self._connection.reply.layout

    @property
    def views(self) -> tuple[PoolViews, ...]:
        """One for each device. Raises the session's end, or RuntimeError after `close`."""
        if self._void is not None:
            raise self._void
        return self._views

    def invalidate(self, error: RadixError) -> None:
        """The session has ended: from now on `views` raises `error`. The connection stays: the mapping does too."""
        if self._void is None:
            self._void = error

    def close(self) -> None:
        """Drop the views, then end the connection. Drop every tensor taken from them first. Idempotent."""
        if self._void is None:
            self._void = RuntimeError("this attachment was closed: attach again")
        self._views = ()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attach(ticket: AttachTicket, role: Role = "worker") -> Attachment:
    """Attach this process in the ticket's session's name and map the pool. Raises as `connection.connect` does."""
    connection = connect(ticket, role)
    try:
        buffers = tuple(_map(handle) for handle in connection.reply.devices)
    except BaseException:
        connection.close()
        raise
    connection.close_handles()
    return Attachment(connection, buffers)


def _map(handle: Handle) -> torch.Tensor:
    """Flat uint8; on torch's meta device for a pool without memory."""
    if handle.fd is None:
        return torch.empty(handle.nbytes, dtype=torch.uint8, device="meta")
    return map_buffer(handle.fd, handle.nbytes)
