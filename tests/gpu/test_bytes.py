"""Bytes on the card: zero at first, where the layout says, and unchanged by every copy."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from radixd.gpu_pool.cuda.gpu import Gpu
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.move import copy_pages, move_tokens
from radixd.gpu_pool.peer_copy import import_pages
from radixd.gpu_pool.presets import load_geometry
from radixd.gpu_pool.tier_copy import load_pages, save_pages

pytestmark = pytest.mark.gpu

PAGES = 24
GLM = load_geometry("glm-5.3")


@pytest.fixture(params=["page_first", "layer_first"])
def memory(request: pytest.FixtureRequest, gpu: Gpu) -> Iterator[PoolMemory]:
    """25 pages of GLM-5.3 on the card, each byte a random one."""
    kind: LayoutKind = request.param
    with PoolMemory.on_gpus(Layout(GLM, kind, PAGES), [gpu]) as memory:
        buffer = memory.views[0].buffer
        assert not buffer.any()
        for start in range(0, buffer.numel(), 2**24):
            part = buffer[start : start + 2**24]
            part.copy_(torch.from_numpy(np.random.default_rng(start).integers(0, 256, part.numel(), np.uint8)))
        del buffer, part
        yield memory


def bytes_of(memory: PoolMemory, page: int) -> np.ndarray:
    """One page in the order in which page_first holds it."""
    return np.concatenate([rows[page].cpu().reshape(-1).numpy() for rows in memory.views[0].layer_rows])


def test_a_page_lies_where_the_geometry_says(memory: PoolMemory) -> None:
    raw = memory.views[0].buffer.cpu().numpy()
    page = 3
    expected = bytes_of(memory, page)
    if memory.layout.kind == "page_first":
        assert np.array_equal(raw[page * 3_452_160 :][:3_452_160], expected)
        return
    pages = PAGES + 1
    latent = [raw[(layer * pages + page) * 41_984 :][:41_984] for layer in range(78)]
    index_at = 78 * pages * 41_984
    index = [raw[index_at + (layer * pages + page) * 8_448 :][:8_448] for layer in range(21)]
    assert np.array_equal(np.concatenate([*latent, *index]), expected)


def test_pages_come_back_from_the_host_as_they_went(memory: PoolMemory) -> None:
    host = HostPool.anonymous(GLM, PAGES)
    memory.pin(host)
    source, saved, target = [5, 6, 7, 20, 2], [9, 10, 11, 1, 24], [13, 14, 1, 8, 22]
    before = {page: bytes_of(memory, page) for page in range(1, PAGES + 1)}
    save_pages(memory, host, source, saved).result()
    for page, kept in zip(source, saved, strict=True):
        assert np.array_equal(host.pages[kept], before[page])
    load_pages(memory, host, saved, target).result()
    came = dict(zip(target, source, strict=True))
    for page in range(1, PAGES + 1):
        assert np.array_equal(bytes_of(memory, page), before[came.get(page, page)])
    memory.close()
    host.close()


def test_pages_and_tokens_move_on_the_card(memory: PoolMemory) -> None:
    before = {page: bytes_of(memory, page) for page in range(1, PAGES + 1)}
    copy_pages(memory, [1, 2, 3], [10, 11, 24]).result()
    assert [np.array_equal(bytes_of(memory, to), before[of]) for of, to in ((1, 10), (2, 11), (3, 24))] == [True] * 3
    rows = [rows[:, :].clone() for rows in memory.views[0].token_rows]
    source, target = [64, 65, 200, 201, 900], [65, 64, 201, 202, 1000]  # a swap, a shift, a jump
    move_tokens(memory, source, target).result()
    for was, now in zip(rows, memory.views[0].token_rows, strict=True):
        for of, to in zip(source, target, strict=True):
            assert torch.equal(now[to // 64, to % 64], was[of // 64, of % 64])
    del was, now, rows


def test_pages_of_another_pool_arrive(memory: PoolMemory, gpus: tuple[Gpu, ...]) -> None:
    with PoolMemory.on_gpus(Layout(GLM, "page_first", PAGES), [gpus[-1]]) as other:
        import_pages(memory, [4, 5, 9], other, [1, 2, 7]).result()
        for of, to in ((4, 1), (5, 2), (9, 7)):
            assert np.array_equal(bytes_of(other, to), bytes_of(memory, of))
