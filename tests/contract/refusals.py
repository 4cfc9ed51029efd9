"""Reading a refusal off the wire."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from radixd.server.cache.refusal import Reason
from radixd.server.rpc.status import CODES


@dataclass
class Told:
    """What a refusal said; filled in where it was expected."""

    message: str = ""
    facts: Mapping[str, str] | None = None
    fields: tuple[str, ...] = ()
    retry_seconds: float | None = None

    def read(self, status: status_pb2.Status, reason: Reason) -> None:
        """Asserts that the status is a refusal for `reason`, and takes the rest."""
        info, request, retry = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.RetryInfo(),
        )
        kinds = set()
        for detail in status.details:
            kinds |= {kind.DESCRIPTOR.name for kind in (info, request, retry) if detail.Unpack(kind)}
        assert (info.domain, info.reason) == ("radixd", reason), status.message
        assert status.code == CODES[reason].value[0]
        assert status.message
        self.message, self.facts = status.message, dict(info.metadata)
        self.fields = tuple(violation.field for violation in request.field_violations)
        self.retry_seconds = retry.retry_delay.ToTimedelta().total_seconds() if "RetryInfo" in kinds else None


@contextmanager
def refused(reason: Reason) -> Iterator[Told]:
    """The call inside is refused for `reason`."""
    told = Told()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield told
    assert caught.value.code() == CODES[reason], caught.value.details()
    status = status_pb2.Status.FromString(dict(caught.value.trailing_metadata())["grpc-status-details-bin"])
    assert status.message == caught.value.details()
    told.read(status, reason)


def result_refused(status: status_pb2.Status, reason: Reason) -> Told:
    """An operation's result says that it was refused for `reason`."""
    told = Told()
    told.read(status, reason)
    return told
