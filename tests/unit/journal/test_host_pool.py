"""The journal beside the memory that it is for."""

from pathlib import Path

import numpy as np

from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.presets import load_geometry
from radixd.server.cache.chain import ROOT
from radixd.server.cache.host_log import Kept
from radixd.server.journal.header import Header, Verdict
from radixd.server.journal.journal import Journal
from radixd.server.journal.recovery import recover
from radixd.server.journal.seal import seal
from radixd.server.journal.stamp import read_stamp, write_stamp
from tests.unit.journal.tier import NAMESPACE, ids

PAGES = 6


def test_pages_of_a_file_are_found_again(tmp_path: Path) -> None:
    geometry = load_geometry("tiny")
    rng = np.random.default_rng(2)
    key = rng.bytes(3 * geometry.page_size * 4)
    for verdict, adopted in ((Verdict.NEW, 0), (Verdict.WARM, 3), (Verdict.WARM, 3)):
        pool = HostPool.in_file(geometry, PAGES, tmp_path / "host.data")
        page0 = pool.pages[0].data
        wanted = Header(
            read_stamp(page0), geometry.fingerprint, geometry.bytes_per_page, geometry.page_size, PAGES, 4, epoch=1
        )
        done: list[tuple[int, int]] = []
        recovered = recover(tmp_path, wanted, pool.checksums, lambda *progress, done=done: done.append(progress))
        assert (recovered.verdict, recovered.pages) == (verdict, adopted)
        assert done == [(adopted, adopted)] * bool(adopted)
        write_stamp(page0, recovered.header.nonce)
        journal = Journal.start(tmp_path, recovered)
        if not adopted:
            pool.pages[[2, 5, 3]] = rng.integers(0, 256, (3, geometry.bytes_per_page), np.uint8)
            kept = Kept(NAMESPACE, ROOT, key, ids(2, 5, 3))
            journal.kept(journal.expect(kept), seal(kept, geometry.fingerprint, pool.checksums))
        else:
            ((namespace, found, pages),) = recovered.paths()
            assert (namespace, found, pages.tolist()) == (NAMESPACE, key, [2, 5, 3])
        journal.close()
        del page0
        pool.close()
