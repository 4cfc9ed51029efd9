"""Tokens and ids as flat memory."""

from array import array

import numpy as np
import pytest

from radixd.client.tokens import MAX_TOKEN, id_bytes, page_ids, token_bytes

EXPECTED = np.array([1, 2, MAX_TOKEN], "<u4").tobytes()


@pytest.mark.parametrize(
    "tokens",
    [
        EXPECTED,
        bytearray(EXPECTED),
        memoryview(EXPECTED),
        np.array([1, 2, MAX_TOKEN], np.uint32),
        np.array([1, 2, MAX_TOKEN], np.int64),
        np.array([1, 2, MAX_TOKEN], ">u4"),
        np.array([1, 0, 2, 0, MAX_TOKEN, 0], np.uint64)[::2],
        array("I", [1, 2, MAX_TOKEN]),
        memoryview(array("Q", [1, 2, MAX_TOKEN])),
        [1, 2, MAX_TOKEN],
        (1, 2, MAX_TOKEN),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_form_of_the_same_tokens_packs_to_the_same_bytes(tokens):
    assert token_bytes(tokens) == EXPECTED


@pytest.mark.parametrize("tokens", [b"", [], np.empty(0, np.uint32), np.empty(0), array("I")])
def test_no_tokens_are_no_bytes(tokens):
    assert token_bytes(tokens) == b""


@pytest.mark.parametrize("tokens", [[1, -1], [2**32], np.array([-1], np.int8), np.array([2**40], np.uint64)])
def test_a_token_outside_uint32_is_refused_with_the_range(tokens):
    with pytest.raises(ValueError, match=rf"tokens: .*within \[0, {MAX_TOKEN}\]"):
        token_bytes(tokens)


@pytest.mark.parametrize("tokens", [[1.5], ["1"], [[1, 2]], np.zeros((2, 2), np.uint32), [True], [2**70]])
def test_what_is_no_flat_integers_is_refused(tokens):
    with pytest.raises(TypeError, match="tokens: expected flat integers"):
        token_bytes(tokens)


def test_raw_memory_must_be_whole_tokens():
    with pytest.raises(ValueError, match="tokens: 5 bytes are no whole number"):
        token_bytes(b"12345")


def test_ids_round_trip():
    ids = [3, 1, 2**31 - 1]
    assert page_ids(id_bytes(ids, "sources")).tolist() == ids
    assert id_bytes(np.empty(0), "sources") == b""


@pytest.mark.parametrize("ids", [[-1], [2**31], [0.5], [[1]]])
def test_ids_outside_int32_are_refused(ids):
    with pytest.raises(ValueError, match="sources: "):
        id_bytes(ids, "sources")


def test_page_ids_share_the_message_and_cannot_be_written():
    pages = page_ids(id_bytes([1, 2], "pages"))
    with pytest.raises(ValueError, match="read-only"):
        pages[0] = 9
