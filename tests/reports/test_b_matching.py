"""Field reports, group B: what matches, and what never may."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.speculative import Speculative
from tests.scheduler import MODEL, Scheduler
from tests.sequences import PAGE, length, ramp, seq

LONG = b"s" * 1024
NAMESPACES = [
    Namespace(MODEL, b"c", b"ab"),
    Namespace(MODEL, b"bc", b"a"),
    Namespace(MODEL, b"", b"abc"),
    Namespace(MODEL, b"abc", b""),
    Namespace(MODEL, b"", b""),
    Namespace(MODEL, b"c\0", b"ab"),
    Namespace(MODEL, b"c", b"\0ab"),
    Namespace(MODEL, b"c|", b"ab"),
    Namespace(MODEL, b"c", b"|ab"),
    Namespace(MODEL, LONG, b"s"),
    Namespace(MODEL, b"s", LONG),
    Namespace(MODEL, LONG + b"s", b""),
    Namespace(MODEL + b"c", b"", b"ab"),
    Namespace(MODEL[:-1], MODEL[-1:] + b"c", b"ab"),
]


def test_crafted_salts_reach_nobody_elses_pages() -> None:
    """B1, J9: salt, extra key and adapter were glued together."""
    for mine, other in itertools.permutations(NAMESPACES, 2):
        one = Scheduler.alone(CacheConfig(4))
        one.namespace = mine
        one.publish(seq("AB"))
        assert one.cached(seq("AB")) == 2 * PAGE
        one.namespace = other
        assert one.cached(seq("AB")) == 0
    digests = {namespace.digest() for namespace in NAMESPACES}
    assert len(digests) == len(NAMESPACES)


def test_digests_do_not_depend_on_the_process() -> None:
    """B10: hashes differed between processes, by a random seed."""
    script = "from radixd.server.cache.namespace import Namespace as N; print(N(b'm', b'', b's').digest())"
    printed = set()
    for seed in ("0", "1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        printed.add(ran.stdout)
    assert len(printed) == 1


def test_another_model_is_another_tree() -> None:
    """B3: weights changed, prefix entries stayed."""
    cache = PrefixCache(CacheConfig(8))
    old = Scheduler(cache, 1, model=b"weights-1")
    old.publish(seq("AB"))
    held = old.acquire(seq("ABC"), allocate_to=0)
    new = Scheduler(cache, 2, model=b"weights-2")
    assert new.cached(seq("AB")) == 0
    cache.flush()
    assert cache.occupancy().protected == 2, "locked pages stay readable"
    old.release(held.lease_id)
    assert cache.occupancy().free == 8
    assert old.cached(seq("AB")) == 0


LENGTHS = [0, 1, 63, 64, 65, 127, 128, 129]
KEPT = {
    Speculative.NONE: [0, 0, 0, 64, 64, 64, 128, 128],
    Speculative.BIGRAM: [0, 0, 0, 0, 64, 64, 64, 128],
    Speculative.DROP_LAST_PAGE: [0, 0, 0, 0, 0, 0, 64, 64],
}


@pytest.mark.parametrize("mode", list(Speculative))
@pytest.mark.parametrize("index", range(len(LENGTHS)))
def test_every_length_matches_to_the_page(mode: Speculative, index: int) -> None:
    """B4: a remainder shorter than a page indexed past the token list."""
    one = Scheduler.alone(CacheConfig(8, speculative=mode))
    tokens = ramp(LENGTHS[index])
    published = one.publish(tokens)
    if mode is not Speculative.DROP_LAST_PAGE:
        assert published == KEPT[mode][index]
    assert one.cached(tokens) == KEPT[mode][index]
    check_invariants(one.cache)


def test_generated_tokens_are_reused_next_turn() -> None:
    """B6: the key was built from the prompt only."""
    one = Scheduler.alone(CacheConfig(16))
    lease = one.acquire(ramp(100), allocate_to=150)
    one.insert(lease.lease_id, 149, tokens=ramp(50, start=100))
    assert one.release(lease.lease_id).published == 128
    assert one.acquire(ramp(150) + ramp(50, start=9_000)).device_tokens == 128


def test_a_tree_stays_sound_under_random_verbs() -> None:
    """B8: after a split a child stood under a stale key, found much later inside eviction."""
    rng = np.random.default_rng(8)
    one = Scheduler.alone(CacheConfig(48))
    alphabet = [seq(letter) for letter in "ABCD"]
    held: list[int] = []
    log: list[str] = []
    for turn in range(3_000):
        letters = rng.integers(0, 4, rng.integers(0, 7))
        tokens = b"".join(alphabet[letter] for letter in letters) + alphabet[rng.integers(4)][: 4 * rng.integers(64)]
        verb = rng.integers(5)
        log.append(f"{verb} {letters.tolist()} {length(tokens)}")
        if verb == 0 and one.cache.occupancy().max_fit >= 8:
            one.publish(tokens)
        elif verb == 1:
            one.cache.match(one.id, one.namespace, tokens)
        elif verb == 2 and one.cache.occupancy().max_fit >= 8:
            held.append(one.acquire(tokens, allocate_to=0).lease_id)
        elif verb == 3 and held:
            one.release(held.pop(rng.integers(len(held))))
        else:
            one.cache.evict(int(rng.integers(3)))
        if turn % 50 == 0:
            try:
                check_invariants(one.cache)
            except Exception:
                print("\n".join(log))
                raise
