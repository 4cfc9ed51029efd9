"""A process's connection to the attach socket: while it is open the daemon knows that the process lives. No torch."""

import os
import socket
from contextlib import suppress
from weakref import finalize

from radixd.client.errors import BY_REASON, GeometryMismatch, RadixError, Refused, StaleEpoch, Unreachable
from radixd.client.ticket import AttachTicket
from radixd.gpu_pool.attach_wire import AttachRefused, AttachReply, AttachRequest, Role, read_reply, send_request
from radixd.gpu_pool.framing import FrameError


class AttachConnection:
    """Open from `connect` until `close`, or until nobody holds it any more.

    Close it only when nothing of this process touches the pool; what does may hold it instead.

    A child forked while it is open inherits it, and counts as a process of the session until it ends too.
    """

    def __init__(self, sock: socket.socket, reply: AttachReply) -> None:
        self._end = finalize(self, sock.close)
        self._end.atexit = False  # the kernel closes what a process leaves, after the driver has unmapped its memory
        self.reply = reply
        """The layout and one handle a device. Its descriptors are open until `close_handles`."""
        self._handles_open = True

    def close_handles(self) -> None:
        """Close the memory's descriptors; mappings made from them stay, and so does the connection."""
        if self._handles_open:
            self._handles_open = False
            self.reply.close()

    def close(self) -> None:
        """End the connection. Idempotent."""
        self.close_handles()
        self._end()


def connect(ticket: AttachTicket, role: Role) -> AttachConnection:
    """Tell the daemon that this process belongs to the session.

    Raises NoSession, BadSecret, Starting and whatever else the daemon answers; Unreachable where nobody does;
    StaleEpoch or GeometryMismatch where the pool is not the ticket's.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection = AttachConnection(sock, _handshake(sock, ticket, role))
    except BaseException:
        sock.close()
        raise
    try:
        _check(ticket, connection.reply)
    except RadixError:
        connection.close()
        raise
    return connection


def _handshake(sock: socket.socket, ticket: AttachTicket, role: Role) -> AttachReply:
    request = AttachRequest(ticket.epoch, ticket.session_id, ticket.secret, os.getpid(), role)
    pidfd = None
    with suppress(OSError):  # an old kernel or a strict seccomp profile; the daemon finds its own way then, or refuses
        pidfd = os.pidfd_open(os.getpid())
    try:
        sock.connect(ticket.attach_socket)
        send_request(sock, request, pidfd)
        return read_reply(sock)
    except AttachRefused as refused:
        kind = BY_REASON.get(refused.reason, Refused)
        raise kind(refused.message, reason=refused.reason) from None
    except (FrameError, OSError) as error:
        raise Unreachable(f"attach socket {ticket.attach_socket}: {error}") from error
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _check(ticket: AttachTicket, reply: AttachReply) -> None:
    if reply.epoch != ticket.epoch:
        facts = {"epoch": str(reply.epoch), "ticket_epoch": str(ticket.epoch)}
        raise StaleEpoch("the daemon has restarted since the session was opened: open a new one", facts=facts)
    offered, expected = reply.layout.geometry.fingerprint.hex(), ticket.geometry_fingerprint.hex()
    if offered != expected:
        facts = {"pool_geometry_fingerprint": offered, "geometry_fingerprint": expected}
        raise GeometryMismatch(
            f"the pool lays out {reply.layout.geometry.name}, not the geometry that the session was opened with",
            facts=facts,
        )
