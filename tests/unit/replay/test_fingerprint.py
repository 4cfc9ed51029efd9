"""Every word of every slot depends on all tokens so far, the namespace and its own place."""

from itertools import combinations

import numpy as np
import pytest
import torch

from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.presets import load_geometry
from radixd.server.replay.fingerprint import poison_seeds, root_seed, token_seeds
from radixd.server.replay.gpu_block import GpuBlock
from radixd.server.replay.slot_block import BlockBytes, HostBlock, slot_blocks
from radixd.server.replay.slot_bytes import Mismatch, PoolBytes

PAGES = 6
ROOT = root_seed(b"model")
TOKENS = np.arange(300, dtype=np.uint32)
LAYOUTS: tuple[LayoutKind, ...] = ("page_first", "layer_first")


class Pool:
    def __init__(self, geometry: str = "tiny", kind: LayoutKind = "page_first") -> None:
        self.layout = Layout(load_geometry(geometry), kind, PAGES)
        self.memory = np.zeros(self.layout.nbytes, dtype=np.uint8)
        self.bytes = PoolBytes(self.layout.geometry.page_size, self.blocks())

    def blocks(self) -> list[BlockBytes]:
        return [HostBlock(place, self.memory) for place in slot_blocks(self.layout)]

    def wrong(self, pages: list[int], start: int, seeds: np.ndarray) -> list[Mismatch]:
        found: list[Mismatch] = []
        self.bytes.check(np.array(pages, dtype=np.int32), start, seeds, found)
        return found

    def write(self, pages: list[int], start: int, seeds: np.ndarray) -> int:
        return self.bytes.write(np.array(pages, dtype=np.int32), start, seeds)


def test_a_seed_depends_on_every_token_up_to_its_own() -> None:
    seeds = token_seeds(ROOT, TOKENS)
    for place in (0, 63, 64, 299):
        other = TOKENS.copy()
        other[place] += 1
        changed = token_seeds(ROOT, other)
        assert (changed[:place] == seeds[:place]).all()
        assert (changed[place:] != seeds[place:]).all()


def test_seeds_grow_with_the_sequence_and_tell_an_order() -> None:
    seeds = token_seeds(ROOT, TOKENS)
    assert (token_seeds(ROOT, TOKENS[:100]) == seeds[:100]).all()
    swapped = TOKENS.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    assert (token_seeds(ROOT, swapped)[4:] != seeds[4:]).all()
    assert np.unique(token_seeds(ROOT, np.zeros(10_000, dtype=np.uint32))).size == 10_000


def test_namespaces_and_leases_share_no_seed() -> None:
    roots = [
        root_seed(b"model"), root_seed(b"model-2"), root_seed(b"model", b"a"), root_seed(b"model", b"", b"a"),
        root_seed(b"modela"), root_seed(b"model", b"ab", b"c"), root_seed(b"model", b"a", b"bc"),
    ]  # fmt: skip
    kinds = [token_seeds(root, TOKENS[:64]) for root in roots]
    kinds += [poison_seeds(session, lease, 64) for session, lease in ((1, 1), (1, 2), (2, 1), (11, 1), (1, 11))]
    for one, other in combinations(kinds, 2):
        assert not np.intersect1d(one, other).size


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("geometry", ["tiny", "llama-8b"])
def test_every_byte_of_a_page_and_no_other_is_written(geometry: str, kind: LayoutKind) -> None:
    """Two writes that agree nowhere but by chance leave no byte as it was in the page; other pages stay zero."""
    pool = Pool(geometry, kind)
    unchanged: np.ndarray | None = None
    for session in range(6):
        before = pool.memory.copy()
        written = pool.write([2], 0, poison_seeds(session, 1, 64))
        same = pool.memory == before
        unchanged = same if unchanged is None else unchanged & same
    assert unchanged is not None
    assert written == pool.layout.geometry.bytes_per_page
    assert np.count_nonzero(~unchanged) == pool.layout.geometry.bytes_per_page
    fresh = Pool(geometry, kind)
    fresh.write([1, 3, 4, 5, 6], 0, token_seeds(ROOT, TOKENS[:320]))
    assert not pool.memory[fresh.memory.astype(bool)].any()


@pytest.mark.parametrize("kind", LAYOUTS)
def test_words_differ_by_region_layer_offset_and_place(kind: LayoutKind) -> None:
    pool = Pool("glm-5.3", kind)
    pool.write([1], 0, token_seeds(ROOT, TOKENS[:64]))
    seen: list[np.ndarray] = []
    for component in pool.layout.geometry.components:
        for layer in component.layers:
            view = pool.layout.page_view(component.name, layer)
            start = view.offset + view.strides[0]
            seen.append(pool.memory[start : start + pool.layout.geometry.bytes_per_component_page(component)])
    words = np.concatenate(seen).view(np.uint32)
    # 863,040 random 32-bit words meet by chance about 87 times
    assert words.size - np.unique(words).size < 400


def test_what_was_written_is_found_in_parts_too() -> None:
    pool = Pool()
    seeds = token_seeds(ROOT, TOKENS)
    table = [5, 1, 4, 2, 6]
    for start, stop in ((0, 7), (7, 130), (130, 131), (131, 300)):
        pool.write(table, start, seeds[start:stop])
    assert not pool.wrong(table, 0, seeds)
    assert not pool.wrong(table, 100, seeds[100:200])


@pytest.mark.parametrize("byte", [0, 15, 16, 31, 5_375])
def test_one_wrong_byte_shows(byte: int) -> None:
    pool = Pool()
    seeds = token_seeds(ROOT, TOKENS[:64])
    pool.write([3], 0, seeds)
    pool.memory[3 * pool.layout.page_stride + byte] ^= 1
    (found,) = pool.wrong([3], 0, seeds)
    assert found.page == 3


def test_a_swapped_stale_foreign_or_unwritten_page_shows() -> None:
    pool = Pool()
    seeds = token_seeds(ROOT, TOKENS[:256])
    pool.write([1, 2, 3, 4], 0, seeds)
    assert len(pool.wrong([2, 1, 3, 4], 0, seeds)) == 2
    assert len(pool.wrong([1, 2, 3, 4], 0, token_seeds(root_seed(b"model", b"adapter"), TOKENS[:256]))) == 4
    edited = TOKENS[:256].copy()
    edited[0] += 1
    assert len(pool.wrong([1, 2, 3, 4], 0, token_seeds(ROOT, edited))) == 4
    pool.write([3], 0, poison_seeds(1, 1, 64))
    assert [wrong.page for wrong in pool.wrong([1, 2, 3, 4], 0, seeds)] == [3]


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("geometry", ["tiny", "llama-8b", "glm-5.3"])
def test_kernels_write_what_the_cpu_writes(geometry: str, kind: LayoutKind) -> None:
    """On tensors that the CPU can compare; where they lie is torch's affair."""
    pool, other = Pool(geometry, kind), Pool(geometry, kind)
    gpu = PoolBytes(64, [GpuBlock(place, torch.from_numpy(other.memory)) for place in slot_blocks(other.layout)])
    table, seeds = np.array([5, 1, 4, 2, 6], dtype=np.int32), token_seeds(ROOT, TOKENS)
    for start, stop in ((0, 7), (7, 130), (130, 300)):
        assert pool.bytes.write(table, start, seeds[start:stop]) == gpu.write(table, start, seeds[start:stop])
    assert (pool.memory == other.memory).all()
    found: list[Mismatch] = []
    assert gpu.check(table, 0, seeds, found) == pool.bytes.check(table, 0, seeds, found)
    assert not found


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("name", ["latent", "index.key", "index.scale"])
def test_kernels_find_the_wrong_byte_that_the_cpu_finds(name: str, kind: LayoutKind) -> None:
    pool, seeds = Pool(kind=kind), token_seeds(ROOT, TOKENS[:64])
    pool.write([3], 0, seeds)
    (wrong,) = [place for place in slot_blocks(pool.layout) if place.name == name]
    layers, _, token, _ = wrong.strides
    pool.memory[wrong.offset + (wrong.shape[0] - 1) * layers + 3 * wrong.strides[1] + 5 * token] ^= 1
    gpu = PoolBytes(64, [GpuBlock(place, torch.from_numpy(pool.memory)) for place in slot_blocks(pool.layout)])
    found: list[Mismatch] = []
    gpu.check(np.array([3], dtype=np.int32), 0, seeds, found)
    assert found == pool.wrong([3], 0, seeds) == [Mismatch(3, 5, name, wrong.layers[-1])]
