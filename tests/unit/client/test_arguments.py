"""Arguments that no field of the contract can hold are named before anything is sent."""

import numpy as np
import pytest

from radixd.client.errors import BadField
from radixd.client.opening import Opening
from tests.unit.client.wire import Wire


def opening(**changes):
    given = {"pool": "", "name": "", "model": b"m", "fingerprint": b"", "dedup": "keep", "speculative": None}
    return Opening(**(given | changes))


@pytest.mark.parametrize(
    ("field", "wrong", "told"),
    [
        ("priority", -1, r"-1 is not within \[0, 100\]; leave it out"),
        ("priority", 101, r"101 is not within \[0, 100\]"),
        ("max_tokens", -1, "-1 is not within"),
        ("allocate_to", "9", "expected a whole number, got str '9'"),
        ("reserve_to", 2**64, "is not within"),
        ("cache_salt", "tenant", "expected bytes, got str 'tenant': write b'tenant'"),
        ("extra_key", 5, "expected bytes, got int 5"),
        ("retain_seconds", -1.0, "expected seconds, 0 or more, got float -1.0; leave it out"),
    ],
)
def test_acquire_names_a_wrong_argument(field, wrong, told):
    batch = Wire().batch()
    with pytest.raises(BadField, match=f"BAD_FIELD: {field}: .*{told}") as raised:
        batch.acquire([1], **{field: wrong})
    assert raised.value.field == field
    assert len(batch) == len(batch.message.operations) == 0


def test_every_verb_leaves_its_batch_as_it_was():
    wire = Wire()
    lease, batch = wire.lease(), wire.batch()
    for field, wrong in (
        ("max_tokens", lambda: batch.match([1], max_tokens=-1)),
        ("max_tokens", lambda: batch.match_lease(lease, max_tokens=-1)),
        ("priority", lambda: batch.wait([1], priority=-1)),
        ("allocate_to", lambda: batch.activate(lease, allocate_to=-1)),
        ("allocate_to", lambda: batch.allocate(lease, -1)),
        ("written", lambda: batch.insert(lease, -1)),
        ("after_step", lambda: batch.insert(lease, 1, after_step=-1)),
        ("from_length", lambda: batch.free(lease, -1)),
        ("publish_to", lambda: batch.release(lease, publish_to=-1)),
        ("reserve_to", lambda: batch.restore(lease, reserve_to=-1)),
    ):
        with pytest.raises(BadField) as raised:
            wrong()
        assert raised.value.field == field
    assert len(batch) == len(batch.message.operations) == len(batch.opening) == 0


def test_numpy_integers_are_integers():
    batch = Wire().batch()
    batch.acquire([1], allocate_to=np.int32(64), priority=np.uint8(3))
    assert batch.message.operations[0].acquire.allocate_to == 64


def test_a_group_takes_operations_of_its_own_batch_alone():
    batch, other = Wire().batch(), Wire().batch()
    mine, foreign = batch.match([1]), other.match([1])
    with pytest.raises(BadField, match="group: -1 is not within"):
        batch.group(-1, mine)
    with pytest.raises(ValueError, match="only operations of this Batch"):
        batch.group(1, foreign)
    batch.group(1, mine)
    assert batch.message.operations[0].group == 1


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("model", "abc"),
        ("fingerprint", "abc"),
        ("pool", b"p"),
        ("name", 7),
        ("dedup", "merge"),
        ("speculative", "eagle"),
    ],
)
def test_a_session_is_opened_with_the_right_kinds(field, wrong):
    with pytest.raises(BadField, match=f"{field}: ") as raised:
        opening(**{field: wrong}).request()
    assert raised.value.field == field
    assert opening().request().model == b"m"
