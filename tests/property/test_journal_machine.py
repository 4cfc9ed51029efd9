"""A journal under any order of events: a restart adopts just what had been flushed, whole and right."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from radixd.server.cache.host_log import Kept
from radixd.server.cache.namespace import Namespace
from radixd.server.journal.compaction import Compaction
from radixd.server.journal.header import Verdict
from radixd.server.journal.journal import State, Ticket
from radixd.server.journal.seal import seal
from tests.unit.journal.tier import FINGERPRINT, KEY_PAGE, Prefix, Tier, adoptable, adopted, key_of

HOST_PAGES = 8
NAMESPACES = (Namespace(b"m"), Namespace(b"m", b"x"), Namespace(b"m", b"", b"x"))

namespaces = st.sampled_from(NAMESPACES)
words = st.lists(st.integers(1, 2), min_size=1, max_size=3)
some_pages = st.lists(st.integers(1, HOST_PAGES), min_size=1, max_size=4, unique=True)


class JournalMachine(RuleBasedStateMachine):
    """Told and durable are followed apart: `tier.held` is what the journal was told, `flushed` what it had to write."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="radixd-journal")
        self.tier = Tier(Path(self.folder.name), HOST_PAGES, compact_bytes=700)
        self.flushed = dict(self.tier.held)
        self.order = len(self.flushed)
        self.sealing: list[tuple[Ticket, Kept, bytes]] = []
        self.owner: dict[int, Ticket] = {}
        self.compaction: Compaction | None = None

    def teardown(self) -> None:
        self.folder.cleanup()

    def overwrite(self, pages: np.ndarray) -> None:
        """What precedes any write to a page."""
        if self.tier.journal.size > 1.5 * self.tier.journal.limit:
            self.begin_compaction()
            self.finish_compaction()
        self.tier.lose(pages)
        for page in pages.tolist():
            self.owner.pop(page, None)
        self.flush()

    @rule(namespace=namespaces, before=st.one_of(st.just(()), words.map(tuple)), word=words, pages=some_pages)
    def copy_and_confirm(
        self, namespace: Namespace, before: tuple[int, ...], word: list[int], pages: list[int]
    ) -> None:
        """A run arrives; its checksums will be made at some time."""
        count = min(len(word), len(pages))
        ids, prefix = np.array(pages[:count], np.int32), key_of(*before) if before else b""
        self.overwrite(ids)
        kept = self.tier.write(namespace, prefix, key_of(*word[:count]), ids)
        ticket = self.tier.journal.expect(kept)
        self.owner.update(dict.fromkeys(ids.tolist(), ticket))
        self.sealing.append((ticket, kept, prefix))

    @rule(data=st.data())
    def sealed(self, data: st.DataObject) -> None:
        """Checksums come back, in any order."""
        if not self.sealing:
            return
        ticket, kept, prefix = self.sealing.pop(data.draw(st.integers(0, len(self.sealing) - 1)))
        self.tier.journal.kept(ticket, seal(kept, FINGERPRINT, self.tier.checksums))
        self.order += 1
        for i, page in enumerate(kept.host_pages.tolist()):
            if self.owner.get(page) is ticket:
                name: Prefix = kept.namespace, prefix + kept.key[: (i + 1) * KEY_PAGE]
                self.tier.held[page] = self.order, name

    @rule(pages=some_pages)
    def lose(self, pages: list[int]) -> None:
        """Evicted; the page is not overwritten yet."""
        ids = np.array(pages, np.int32)
        self.tier.lose(ids)
        for page in pages:
            self.owner.pop(page, None)

    @rule()
    def flush(self) -> None:
        assert self.tier.journal.flush()
        self.flushed = dict(self.tier.held)

    @rule()
    def begin_compaction(self) -> None:
        if self.compaction is None:
            self.compaction = self.tier.journal.begin_compaction()
            if self.compaction is not None:
                self.flushed = dict(self.tier.held)
                self.compaction.run()

    @rule()
    def finish_compaction(self) -> None:
        if self.compaction is not None:
            self.tier.journal.finish_compaction(self.compaction)
            self.flushed = dict(self.tier.held)
            self.compaction = None

    @rule(orderly=st.booleans())
    def restart(self, orderly: bool) -> None:
        """SIGTERM or kill -9."""
        if orderly:
            self.tier.journal.close()
            self.flushed = dict(self.tier.held)
        self.tier = Tier(Path(self.folder.name), HOST_PAGES, compact_bytes=700)
        assert self.tier.recovered.clean == orderly
        assert adopted(self.tier.recovered, self.tier.pages) == adoptable(self.flushed)
        self.flushed = dict(self.tier.held)
        self.sealing, self.owner, self.compaction = [], {}, None

    @invariant()
    def a_restart_would_be_right(self) -> None:
        recovered = self.tier.recover()
        assert recovered.verdict is Verdict.WARM
        assert not recovered.bad
        assert recovered.dropped.checksum == 0
        assert adopted(recovered, self.tier.pages) == adoptable(self.flushed)

    @invariant()
    def the_file_is_bounded(self) -> None:
        assert self.tier.journal.state is State.WRITING
        assert self.tier.journal.size <= 2 * self.tier.journal.limit


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=40, stateful_step_count=40)
