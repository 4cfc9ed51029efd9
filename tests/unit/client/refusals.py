"""Refusals as a daemon sends them."""

from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2


def packed(message: Message) -> any_pb2.Any:
    """`message` as a status's detail."""
    holder = any_pb2.Any()
    holder.Pack(message)
    return holder


def refusal(reason: str, domain: str = "radixd", **facts: str) -> status_pb2.Status:
    """A status whose ErrorInfo gives `reason`."""
    info = error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=facts)
    return status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message="why", details=[packed(info)])
