"""Talking to a running daemon: where it is, and its errors in one line."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import grpc
from google.rpc import error_details_pb2, status_pb2

from radixd.gpu_pool.paths import default_socket
from radixd.v1 import admin_pb2_grpc

MESSAGE_BYTES = 64 * 2**20
TIMEOUT_S = 30.0
DETAILS_KEY = "grpc-status-details-bin"


class CommandError(Exception):
    """A command failed; the message is one line for the operator."""


def add_target(parser: argparse.ArgumentParser) -> None:
    """The flag that says which daemon."""
    parser.add_argument(
        "--target", metavar="SOCKET", default=str(default_socket()),
        help="the daemon's socket, or HOST:PORT on loopback (default: %(default)s)",
    )  # fmt: skip


@contextmanager
def admin(target: str) -> Iterator[admin_pb2_grpc.AdminStub]:
    """The daemon's Admin service. Its refusals and its absence become CommandError."""
    with daemon_channel(target) as channel:
        yield admin_pb2_grpc.AdminStub(channel)


@contextmanager
def daemon_channel(target: str) -> Iterator[grpc.Channel]:
    """A channel to the daemon. Failed calls become CommandError."""
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES)]
    with grpc.insecure_channel(address(target), options) as channel:
        try:
            yield channel
        except grpc.RpcError as error:
            raise CommandError(explained(error, target)) from error


def address(target: str) -> str:
    """gRPC's name for a socket's path or HOST:PORT."""
    if target.startswith("unix:") or ("/" not in target and target.rpartition(":")[2].isdigit()):
        return target
    return f"unix:{Path(target).absolute()}"


def explained(error: grpc.RpcError, target: str) -> str:
    """Why a call failed, in one line."""
    if error.code() is grpc.StatusCode.UNAVAILABLE and not error.trailing_metadata():
        return f"no daemon answers at {target}: start one with `radixd serve`, or name another with --target"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"the daemon at {target} did not answer within {TIMEOUT_S:g} s"
    return f"{error.details()} ({_reason(error)})"


def _reason(error: grpc.RpcError) -> str:
    """The contract's name for it; gRPC's where the daemon has not spoken."""
    info = error_details_pb2.ErrorInfo()
    metadata = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for key, value in metadata:
        if key == DETAILS_KEY and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Unpack(info):
                    return info.reason
    return error.code().name
