"""The attach socket: registers whoever asks for a pool's memory, then hands it out."""

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from radixd.gpu_pool.attach_wire import (
    AttachRefused,
    AttachReply,
    AttachRequest,
    read_request_async,
    send_reply_async,
)
from radixd.gpu_pool.framing import FrameError
from radixd.gpu_pool.handle import Handle
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.gate import Gate
from radixd.server.holder import Holder, HolderError, open_pidfd, peer_pid
from radixd.server.pools.pool import Pool
from radixd.server.sessions.registry import SessionRegistry

log = logging.getLogger(__name__)

MAX_PENDING = 64
"""Handshakes at once; further connections wait in the kernel's backlog."""
HANDSHAKE_SECONDS = 5.0
RETRY_ACCEPT_SECONDS = 0.5


class AttachServer:
    """Listens on `path` (mode 0600) from `start` on. Holders stay watched until their processes have ended."""

    def __init__(self, path: Path, registry: SessionRegistry[Pool], gate: Gate, epoch: int) -> None:
        self._path = path
        self._registry = registry
        self._gate = gate
        self._epoch = epoch
        self._admitted: int | None = None
        self._holders: WeakSet[Holder] = WeakSet()  # the loop, or its session, keeps each of them
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MAX_PENDING)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)

    def start(self) -> None:
        """Bind and listen. The caller holds the lock on the sockets."""
        previous = os.umask(0o177)
        try:
            self._listener.bind(str(self._path))
        finally:
            os.umask(previous)
        self._listener.listen(MAX_PENDING)
        self._start(self._accept())

    @contextmanager
    def admitting(self, session_id: int) -> Iterator[None]:
        """Let one session's processes attach, whatever the daemon's phase."""
        self._admitted = session_id
        try:
            yield
        finally:
            self._admitted = None

    async def stop_accepting(self) -> None:
        """Close the socket and end the handshakes under way; holders stay watched."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    async def close(self) -> None:
        """Let go of every holder too: the memory ends with the daemon, so nobody's end matters any more."""
        await self.stop_accepting()
        for holder in self._holders:
            holder.close()
        self._holders.clear()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("attach: a connection's task failed", exc_info=error)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                # Out of descriptors, most likely: every holder that goes gives two back.
                log.warning("attach: cannot accept a connection: %s", error)
                self._room.release()
                await asyncio.sleep(RETRY_ACCEPT_SECONDS)
            else:
                self._start(self._handshake(connection))

    async def _handshake(self, connection: socket.socket) -> None:
        """Read the request, register the holder, answer, watch. Whoever is not registered loses the connection."""
        holder: Holder | None = None
        try:
            received = await read_request_async(connection, HANDSHAKE_SECONDS)
            request = received.request
            pool, holder = self._register(connection, request, open_pidfd(connection, received.pidfd))
            # From here on the process may hold the memory, whatever becomes of the answer.
            ids = {"pool": pool.name, "session": holder.session_id, "pid": holder.pid}
            text = "attach: pid %d (%s) holds pool %s in session %d"
            log.info(text, holder.pid, holder.role, pool.name, holder.session_id, extra=ids)
            await send_reply_async(connection, _reply(pool, self._epoch), HANDSHAKE_SECONDS)
        except (FrameError, HolderError) as error:
            log.warning("attach: %s", error)
            if holder is None:
                await _refuse(connection, AttachRefused(Reason.BAD_FIELD, str(error)))
        except Refusal as refusal:
            log.info("attach: refused: %s", refusal.message)
            await _refuse(connection, AttachRefused(refusal.reason, refusal.message))
        finally:
            self._room.release()
            if holder is None:
                connection.close()
            else:
                holder.watch(self._gone)

    def _register(self, connection: socket.socket, request: AttachRequest, pidfd: int) -> tuple[Pool, Holder]:
        """Make the holder known before it can have seen any memory: no await lies in between."""
        holder = Holder(request.session_id, request.role, connection, pidfd, peer_pid(connection))
        try:
            self._registry.check_epoch(request.epoch)
            if request.session_id != self._admitted:
                self._gate.check()
            pool = self._registry.attach(request.session_id, request.secret, holder)
        except BaseException:
            os.close(pidfd)
            raise
        self._holders.add(holder)
        return pool, holder

    def _gone(self, holder: Holder) -> None:
        ids = {"session": holder.session_id, "pid": holder.pid}
        log.info("attach: pid %d of session %d is gone", holder.pid, holder.session_id, extra=ids)
        self._registry.holder_gone(holder.session_id, holder)


def _reply(pool: Pool, epoch: int) -> AttachReply:
    if pool.memory is None:
        return AttachReply(epoch, pool.layout, (Handle("meta", pool.layout.nbytes),) * pool.devices)
    return AttachReply(epoch, pool.layout, pool.memory.export())


async def _refuse(connection: socket.socket, refusal: AttachRefused) -> None:
    with suppress(FrameError):
        await send_reply_async(connection, refusal, HANDSHAKE_SECONDS)
