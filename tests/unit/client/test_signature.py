"""`help` tells the truth of the verbs that are Batches of one."""

import inspect

import pytest

from radixd.client import AsyncLease, AsyncSession, Lease, Session


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        (Session.match, "MatchResult"),
        (Session.acquire, "Lease"),
        (AsyncSession.acquire, "AsyncLease"),
        (Lease.insert, "InsertResult"),
        (Lease.restore, "Lease"),
        (AsyncLease.move, "int"),
        (AsyncLease.allocate, "Pages"),
    ],
)
def test_a_single_verb_shows_its_answer(verb, answer):
    signature = inspect.signature(verb)
    assert signature.return_annotation == answer
    assert "group" not in signature.parameters


def test_a_leases_verbs_do_not_ask_for_the_lease():
    assert [*inspect.signature(Lease.insert).parameters] == ["self", "written", "after_step", "tokens"]
    assert inspect.signature(AsyncSession.activate).parameters["lease"].annotation == "AsyncLease"
