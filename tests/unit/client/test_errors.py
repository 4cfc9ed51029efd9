"""One exception class for each reason of the contract."""

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2

from radixd import client
from radixd.client import errors
from radixd.v1 import errors_pb2
from tests.unit.client.refusals import packed, refusal

REASONS = sorted(set(errors_pb2.ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"})


class EndedCall(grpc.RpcError):
    """A call as gRPC reports its end."""

    def __init__(self, code, metadata=(), details="told"):
        self._code, self._metadata, self._details = code, metadata, details

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._metadata


def test_reasons_and_classes_correspond_one_to_one():
    assert sorted(errors.BY_REASON) == REASONS
    assert len(set(errors.BY_REASON.values())) == len(REASONS)
    for reason, kind in errors.BY_REASON.items():
        assert kind.__name__ == "".join(word.capitalize() for word in reason.split("_"))
        assert getattr(client, kind.__name__) is kind


@pytest.mark.parametrize("reason", REASONS)
def test_a_status_becomes_the_class_of_its_reason(reason):
    error = errors.from_status(refusal(reason, free="3"))
    assert type(error) is errors.BY_REASON[reason]
    assert (error.reason, error.facts, error.field, error.retry_after) == (reason, {"free": "3"}, None, None)
    assert str(error) == f"{reason}: why (free=3)"


def test_field_and_delay_are_read_where_they_are_told():
    status = refusal("BAD_FIELD")
    violation = error_details_pb2.BadRequest.FieldViolation(field="priority", description="101")
    status.details.append(packed(error_details_pb2.BadRequest(field_violations=[violation])))
    delay = duration_pb2.Duration(seconds=1, nanos=500_000_000)
    status.details.append(packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    error = errors.from_status(status)
    assert isinstance(error, ValueError)
    assert (error.field, error.retry_after) == ("priority", 1.5)


def test_a_reason_of_a_newer_daemon_is_a_plain_refusal():
    error = errors.from_status(refusal("NEW_ONE"))
    assert type(error) is errors.Refused
    assert error.reason == "NEW_ONE"


def test_another_domains_reason_is_not_ours():
    error = errors.from_status(refusal("NO_PAGES", domain="elsewhere"))
    assert type(error) is errors.Refused


def test_an_rpc_carries_its_status_in_trailing_metadata():
    metadata = (("other", "1"), (errors.STATUS_KEY, refusal("NO_POOL").SerializeToString()))
    assert type(errors.from_rpc(EndedCall(grpc.StatusCode.NOT_FOUND, metadata))) is errors.NoPool


def test_grpcs_own_oversize_refusal_is_a_limit():
    error = errors.from_rpc(EndedCall(grpc.StatusCode.RESOURCE_EXHAUSTED))
    assert type(error) is errors.LimitExceeded
    assert error.field == "message_bytes"


@pytest.mark.parametrize("code", errors.TRANSIENT)
def test_a_broken_connection_is_unreachable_and_may_pass(code):
    error = errors.from_rpc(EndedCall(code, None))
    assert type(error) is errors.Unreachable
    assert errors.is_passing(error)


def test_only_a_daemon_that_comes_or_goes_is_worth_another_try():
    passing = {reason for reason, kind in errors.BY_REASON.items() if errors.is_passing(kind("why"))}
    assert passing == {"STARTING", "DRAINING"}


def test_what_ends_a_session():
    ends = {reason for reason, kind in errors.BY_REASON.items() if issubclass(kind, errors.SessionOver)}
    assert ends == {
        "NO_SESSION",
        "BAD_SECRET",
        "FENCED",
        "STALE_EPOCH",
        "SEQ_REUSED",
        "SEQ_EXPIRED",
        "DEVICE_LOST",
        "BROKEN_INVARIANT",
    }
