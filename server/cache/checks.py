"""Refusals of bad fields and wrong states, each naming the field, the limit and the way out."""

from __future__ import annotations

from radixd.server.cache.lease import Lease, LeaseState
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.session import Session


def check_limit(field: str, value: int, limit: int) -> None:
    """Refuses more than a limit of OpenSession's reply."""
    if value > limit:
        message = f"{field}: {value} exceeds the limit of {limit}"
        raise Refusal(Reason.LIMIT_EXCEEDED, message, field=field, facts={"limit": limit, "value": value})


_WAYS_OUT = {
    LeaseState.WAITING: "acquire it first",
    LeaseState.ACTIVE: "release it with `keep` to make it wait",
    LeaseState.OFFLOADING: "wait until it is offloaded, or release it",
    LeaseState.OFFLOADED: "restore it first",
    LeaseState.RESTORING: "wait until its bytes have arrived",
}


def check_state(lease: Lease, state: LeaseState) -> None:
    """Refuses a lease in any other state."""
    if lease.state is not state:
        message = f"lease {lease.lease_id} is {lease.state}, this takes one that is {state}: {_WAYS_OUT[lease.state]}"
        raise Refusal(Reason.NOT_ACTIVE, message, facts={"state": lease.state.value})


def check_arrived(lease: Lease) -> None:
    """Refuses a lease whose prefix is still arriving from the host."""
    if lease.load is not None:
        message = (
            f"the prefix of lease {lease.lease_id} is still arriving; wait for the end of copy {lease.load.copy_id}"
        )
        raise Refusal(Reason.IN_FLIGHT, message, facts={"copy_id": lease.load.copy_id})


def check_no_copies(lease: Lease) -> None:
    """Refuses a lease whose pages a copy may touch."""
    if lease.copies:
        message = f"lease {lease.lease_id} has {lease.copies} copies in flight; wait until they have finished"
        raise Refusal(Reason.IN_FLIGHT, message, facts={"copies": lease.copies})


def check_no_steps(session: Session) -> None:
    """Refuses while the session's engine has steps in flight."""
    launched, completed = session.fence.launched, session.fence.completed
    if launched > completed:
        message = f"steps {completed + 1} to {launched} are in flight; send a Batch once they have completed"
        raise Refusal(Reason.IN_FLIGHT, message, facts={"launched": launched, "completed": completed})


def check_length(field: str, length: int, known: int, allocated: int) -> None:
    """Refuses to publish what is not known or has no page."""
    if not 0 <= length <= min(known, allocated):
        message = f"{field}: {length} must be at most the {known} tokens known and the {allocated} allocated"
        raise Refusal(Reason.BAD_FIELD, message, field=field)


def check_after_step(session: Session, after_step: int) -> None:
    """Refuses a step that has not been launched."""
    if not 0 <= after_step <= session.fence.launched:
        message = f"after_step: {after_step} has not been launched; the last step is {session.fence.launched}"
        raise Refusal(Reason.BAD_FIELD, message, field="after_step")


def check_giving_up(lease: Lease, from_length: int, kept: int, page_size: int, lookahead: int) -> None:
    """Refuses to give up pages above the `kept` first ones that are given up already, or are the tree's.

    The tokens that published pages are keyed by, `lookahead` of them beyond the pages, stay known too: another token
    there would make them pages of another prefix.
    """
    allocated = lease.table.length * page_size
    if kept > lease.table.length:
        message = (
            f"from_length: {from_length} is beyond the {allocated} tokens allocated: pages there were given up before, "
            "or never were the lease's"
        )
        raise Refusal(Reason.DOUBLE_FREE, message, field="from_length", facts={"allocated": allocated})
    keyed = lease.pending + lookahead if lease.pending else 0
    if from_length < keyed:
        message = f"from_length: {from_length} is below the {keyed} tokens that published pages stand for"
        raise Refusal(Reason.PUBLISHED, message, field="from_length", facts={"published": lease.pending})


def pages_for(field: str, tokens: int, page_size: int) -> int:
    """Pages that hold a length."""
    if tokens < 0:
        raise Refusal(Reason.BAD_FIELD, f"{field}: {tokens} is negative; lengths count tokens from 0", field=field)
    return -(-tokens // page_size)
