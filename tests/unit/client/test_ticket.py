"""What a worker gets from its scheduler."""

import json
import pickle

import pytest

from radixd.client.ticket import AttachTicket

TICKET = AttachTicket("/run/radixd/radixd.sock.attach", 2**63, b"\x00\xffsecret", 2**64 - 1, b"g" * 16)


def test_json_and_pickle_bring_the_same_ticket():
    assert AttachTicket.from_json(TICKET.to_json()) == TICKET
    assert pickle.loads(pickle.dumps(TICKET)) == TICKET


def test_the_secret_is_not_shown():
    assert "secret" not in repr(TICKET)


def test_a_ticket_that_lacks_a_field_names_it():
    data = json.loads(TICKET.to_json())
    del data["epoch"]
    with pytest.raises(ValueError, match="epoch: missing"):
        AttachTicket.from_json(json.dumps(data))
