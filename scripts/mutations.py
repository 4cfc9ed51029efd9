"""Plants one fault after another in a copy of the tree, and demands that the tests named beside it notice.

    python scripts/mutations.py [NAME…]

Exits 1 if a fault survives, if its text no longer stands in the source, or if the tests fail without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("server", "client", "gpu_pool", "proto", "tests", "scripts", "pyproject.toml", "README.md")
PACKAGES = {"server": "server", "client": "client", "gpu_pool": "gpu_pool", "v1": "proto/radixd/v1"}

REPORTS = "tests/reports"
CACHE = "tests/unit/cache"
JOURNAL = "tests/unit/journal"
TIERS = f"{CACHE}/test_tiers.py"
IMPORTS = f"{CACHE}/test_imports.py"


@dataclass(frozen=True)
class Mutation:
    """A fault: in `path`, `old` becomes `new`; `tests` must fail for it."""

    name: str
    path: str
    old: str
    new: str
    tests: str


MUTATIONS = (
    Mutation(
        "skip an unlock",
        "server/cache/ending.py",
        "        self._ledger.release(lease.table.truncate(0), Owner.LEASED)\n        self._unlock(lease)\n",
        "        self._ledger.release(lease.table.truncate(0), Owner.LEASED)\n",
        f"{REPORTS}/test_c_eviction.py::test_a_lock_is_released_where_it_was_taken",
    ),
    Mutation(
        "reuse a retired page before its step is over",
        "server/cache/session.py",
        "        self.fence.after(self.fence.launched, finish)\n",
        "        finish()\n",
        f"{REPORTS}/test_f_crash.py::test_a_step_in_flight_keeps_what_was_given_up",
    ),
    Mutation(
        "unlock a prefix before its step is over",
        "server/cache/ending.py",
        "        session.fence.after(session.fence.launched, lease.step_over)\n",
        "        lease.step_over()\n",
        f"{CACHE}/test_lease.py::test_a_prefix_is_locked_until_the_step_that_may_read_it_has_completed",
    ),
    Mutation(
        "publish before the step has written",
        "server/cache/insertion.py",
        "        if after_step <= session.fence.completed:\n",
        "        if after_step <= session.fence.launched:\n",
        f"{CACHE}/test_lease.py::test_pages_are_matchable_once_their_step_has_completed",
    ),
    Mutation(
        "forget a region in a move",
        "gpu_pool/move.py",
        "for rows in views.token_rows]",
        "for rows in views.token_rows[:-1]]",
        "tests/unit/gpu_pool/test_move.py::test_keys_scales_and_latents_follow_the_token_and_neighbours_stay",
    ),
    Mutation(
        "drop the model from the namespace",
        "server/cache/tree.py",
        "        root = self.roots.get(namespace)\n        return None",
        "        root = next((r for n, r in self.roots.items() if n.extra_key == namespace.extra_key), None)\n"
        "        return None",
        f"{REPORTS}/test_b_matching.py::test_another_model_is_another_tree",
    ),
    Mutation(
        "join the extra key to the salt",
        "server/rpc/convert.py",
        "    return Namespace(session.opening.model, extra_key, cache_salt)\n",
        '    return Namespace(session.opening.model, b"", extra_key + cache_salt)\n',
        f"{REPORTS}/test_processes.py::test_namespaces_reach_the_cache",
    ),
    Mutation(
        "join the parts of a namespace in its digest",
        "server/cache/namespace.py",
        '        framed = b"".join(len(part).to_bytes(4, "little") + part for part in parts)\n',
        '        framed = b"".join(parts)\n',
        f"{REPORTS}/test_b_matching.py::test_crafted_salts_reach_nobody_elses_pages",
    ),
    Mutation(
        "leave a locked leaf in the eviction queue",
        "server/cache/tier.py",
        "        self.unqueue(node)\n        self.evictable -= pages\n",
        "        self.evictable -= pages\n",
        f"{REPORTS}/test_c_eviction.py::test_a_page_is_queued_once",
    ),
    Mutation(
        "accept a double free",
        "server/cache/checks.py",
        "    if kept > lease.table.length:\n",
        "    if kept > lease.table.length + 1:\n",
        f"{REPORTS}/test_a_accounting.py",
    ),
    Mutation(
        "free patched-out pages before the patch is acknowledged",
        "server/cache/prefix_cache.py",
        "it.reply is not None and it.reply <= mark.ack",
        "it.reply is not None",
        f"{REPORTS}/test_a_accounting.py::test_the_loser_of_a_race_reads_canonical_pages",
    ),
    Mutation(
        "lose the locks in a split",
        "server/cache/tree.py",
        "        upper.lock_ref, upper.keep_ref = lower.lock_ref, lower.keep_ref\n",
        "        upper.keep_ref = lower.keep_ref\n",
        f"{REPORTS}/test_c_eviction.py::test_a_lock_is_released_where_it_was_taken",
    ),
    Mutation(
        "ignore reservations",
        "server/cache/admission.py",
        "        return self._ledger.free + self._device.evictable - self.reserved\n",
        "        return self._ledger.free + self._device.evictable\n",
        f"{CACHE}/test_reservation.py",
    ),
    Mutation(
        "leave no page for growing leases",
        "server/cache/admission.py",
        "        return max(0, self.unreserved - self.growing)\n",
        "        return max(0, self.unreserved)\n",
        f"{CACHE}/test_reservation.py::test_an_acquire_leaves_each_growing_lease_a_page",
    ),
    Mutation(
        "count the own prefix as evictable",
        "server/cache/acquisition.py",
        "        self._admission.check_acquire(new + growth.reserved + parts.arriving + locked)\n",
        "        self._admission.check_acquire(new + growth.reserved + parts.arriving)\n",
        f"{CACHE}/test_reservation.py::test_an_acquire_costs_the_evictable_pages_that_it_locks",
    ),
    Mutation(
        "leave flushed pages matchable",
        "server/cache/tree.py",
        "        self.detached.update(self.roots.values())\n        self.roots = {}\n",
        "        self.detached.update(self.roots.values())\n",
        f"{REPORTS}/test_a_accounting.py::test_a_lock_from_before_a_flush_returns_quietly",
    ),
    Mutation(
        "publish from before a flush",
        "server/cache/publication.py",
        " or lease.anchor.root.detached:",
        ":",
        f"{CACHE}/test_lease.py::test_a_flushed_lease_reads_on_and_publishes_nothing",
    ),
    Mutation(
        "free a silent session's pages without proof",
        "server/cache/ending.py",
        "        remains = Remains(proved_gone)\n",
        "        remains = Remains(True)\n",
        f"{REPORTS}/test_f_crash.py::test_silence_revokes_ids_and_only_proof_frees",
    ),
    Mutation(
        "let a dead writer's pages be published",
        "server/cache/session.py",
        "                lease.barred = True\n",
        "                lease.barred = False\n",
        f"{REPORTS}/test_f_crash.py::test_a_dead_writer_publishes_nothing_more",
    ),
    Mutation(
        "publish over a failed copy",
        "server/cache/moves.py",
        "            if error and lease.ended:\n",
        "            if error and not lease.ended:\n",
        f"{REPORTS}/test_f_crash.py::test_a_failed_copy_publishes_nothing",
    ),
    Mutation(
        "hand out pages under a copy",
        "server/cache/ending.py",
        "        if lease.copies:\n            lease.close",
        "        if lease.copies > 1:\n            lease.close",
        f"{REPORTS}/test_f_crash.py::test_pages_under_a_copy_are_not_handed_out",
    ),
    Mutation(
        "publish a page whose next token is not known",
        "server/cache/speculative.py",
        "        return min(written, known - self.lookahead)\n",
        "        return min(written, known)\n",
        f"{REPORTS}/test_b_matching.py",
    ),
    Mutation(
        "forget the token behind a published pair",
        "server/cache/checks.py",
        "    keyed = lease.pending + lookahead if lease.pending else 0\n",
        "    keyed = lease.pending\n",
        f"{REPORTS}/test_e_speculative.py::test_the_token_behind_a_published_pair_stays",
    ),
    Mutation(
        "reuse the last matched page under drafts",
        "server/cache/speculative.py",
        "        return min(1, matched_pages) if self is Speculative.DROP_LAST_PAGE else 0\n",
        "        return 0\n",
        f"{REPORTS}/test_e_speculative.py::test_the_last_matched_page_is_recomputed",
    ),
    Mutation(
        "share a retracted lease's tokens",
        "server/cache/lease.py",
        "        tokens = TokenBuffer(self.tokens.read(0, len(self.tokens)))\n",
        "        tokens = self.tokens\n",
        f"{CACHE}/test_lease.py::test_a_retracted_leases_last_publication_is_of_the_tokens_it_had",
    ),
    Mutation(
        "refresh only whole nodes on a hit",
        "server/cache/matching.py",
        "                self._tree.touch(walk.partial or walk.node)\n",
        "                self._tree.touch(walk.node)\n",
        f"{REPORTS}/test_c_eviction.py::test_a_hit_in_the_middle_of_a_run_refreshes_it",
    ),
    Mutation(
        "let go of a prefix without a mark of its use",
        "server/cache/residence.py",
        "        self._tree.touch(node)\n        self.unlock(node)\n",
        "        self.unlock(node)\n",
        f"{REPORTS}/test_c_eviction.py::test_what_is_published_last_goes_last",
    ),
    Mutation(
        "evict by age alone",
        "server/cache/policy.py",
        '    "priority": lambda node: (node.priority, node.last_use),\n',
        '    "priority": lambda node: (node.last_use,),\n',
        f"{REPORTS}/test_c_eviction.py::test_lower_priority_goes_first_then_the_longest_unused",
    ),
    Mutation(
        "demote without a lock",
        "server/cache/demotion.py",
        "        self._residence.lock(node)\n        host_pages",
        "        host_pages",
        f"{TIERS}::test_a_node_that_is_saved_cannot_be_evicted_meanwhile",
    ),
    Mutation(
        "believe a copy to the host that failed",
        "server/cache/demotion.py",
        "        if error or len(node.host):\n",
        "        if len(node.host):\n",
        f"{TIERS}::test_a_save_that_fails_leaves_the_node_on_the_device_alone",
    ),
    Mutation(
        "let a split forget that its node is kept",
        "server/cache/tree.py",
        "        upper.lock_ref, upper.keep_ref = lower.lock_ref, lower.keep_ref\n",
        "        upper.lock_ref = lower.lock_ref\n",
        f"{TIERS}::test_a_split_is_kept_as_the_node_was",
    ),
    Mutation(
        "copy without bound",
        "server/cache/demotion.py",
        "        if self._copies.pages + node.size > self._config.max_copy_pages:\n",
        "        if node.size > self._config.max_copy_pages:\n",
        f"{TIERS}::test_pages_under_copies_are_bounded_and_beyond_the_bound_are_dropped",
    ),
    Mutation(
        "leave a load without a lock of its own",
        "server/cache/loading.py",
        "        self._residence.lock(load.anchor)  # the copy's own lock: leases may go before it ends\n",
        "",
        f"{REPORTS}/test_f_crash.py::test_pages_that_a_load_still_fills_are_not_handed_out",
    ),
    Mutation(
        "give a failed load's pages to everybody who waits",
        "server/cache/loading.py",
        "            pages = pages[len(own) :]\n",
        "",
        f"{TIERS}::test_joining_a_load_reserves_what_its_failure_would_cost",
    ),
    Mutation(
        "reserve nothing for a load that is joined",
        "server/cache/acquisition.py",
        "        self._admission.check_acquire(new + growth.reserved + parts.arriving + locked)\n",
        "        self._admission.check_acquire(new + growth.reserved + locked)\n",
        f"{TIERS}::test_a_load_is_joined_only_where_its_failure_could_be_met",
    ),
    Mutation(
        "publish over bytes that are arriving",
        "server/cache/publication.py",
        "        if parts.arriving or not self._admission",
        "        if not self._admission",
        f"{TIERS}::test_a_publication_stops_before_bytes_that_are_arriving",
    ),
    Mutation(
        "offload before the step has written",
        "server/cache/preemption.py",
        "        session.fence.after(session.fence.launched, lambda: self._start(lease))\n",
        "        self._start(lease)\n",
        f"{REPORTS}/test_d_tiers.py::test_an_offload_waits_for_the_step_that_writes",
    ),
    Mutation(
        "end a lease under its offload",
        "server/cache/preemption.py",
        "        lease.copies += 1\n        self._unstarted.add(lease)\n",
        "        self._unstarted.add(lease)\n",
        f"{REPORTS}/test_f_crash.py::test_pages_that_an_offload_still_reads_are_not_handed_out",
    ),
    Mutation(
        "forget an offload that has not begun",
        "server/cache/ending.py",
        "        lease.leave_load()\n        self._preemption.cancel(lease)\n        self._admission",
        "        lease.leave_load()\n        self._admission",
        f"{REPORTS}/test_f_crash.py::test_an_offload_that_has_not_begun_when_its_lease_ends_never_does",
    ),
    Mutation(
        "give up the device before the host has confirmed",
        "server/cache/preemption.py",
        "        if error or lease.ended:\n",
        "        if lease.ended:\n",
        f"{REPORTS}/test_f_crash.py::test_an_offload_that_fails_leaves_the_lease_as_it_was",
    ),
    Mutation(
        "let the host evict an offloaded lease's prefix",
        "server/cache/preemption.py",
        "        self._residence.keep(lease.anchor)\n",
        "",
        f"{TIERS}::test_the_host_keeps_an_offloaded_prefix_whoever_wants_room",
    ),
    Mutation(
        "keep an offloaded prefix for ever",
        "server/cache/preemption.py",
        "        self._residence.unkeep(lease.anchor)\n        lease.readable",
        "        lease.readable",
        f"{TIERS}::test_the_host_keeps_an_offloaded_prefix_whoever_wants_room",
    ),
    Mutation(
        "give saved pages back before they are loaded",
        "server/cache/preemption.py",
        "        first = lease.published // self._page_size\n        lease.state = LeaseState.RESTORING\n",
        "        first = lease.published // self._page_size\n        self._host.free(lease.saved)\n"
        "        lease.state = LeaseState.RESTORING\n",
        f"{REPORTS}/test_d_tiers.py::test_a_lease_comes_back_whole_to_other_pages",
    ),
    Mutation(
        "tell a kept lease of its last life's copies",
        "server/cache/prefix_cache.py",
        "        session.untell(lease_id)\n",
        "",
        f"{REPORTS}/test_f_crash.py::test_replies_tell_nothing_of_leases_that_are_over",
    ),
    Mutation(
        "evict a host page and tell the journal nothing",
        "server/cache/residence.py",
        "                self.log.append(Lost(pages))\n",
        "                pass\n",
        f"{TIERS}::test_a_journal_learns_of_each_page_once_it_is_there_and_before_it_is_gone",
    ),
    Mutation(
        "flush and tell the journal nothing",
        "server/cache/residence.py",
        "            self.log += [Lost(node.host) for node in nodes if len(node.host)]\n",
        "            pass\n",
        f"{TIERS}::test_a_journal_learns_of_each_page_once_it_is_there_and_before_it_is_gone",
    ),
    Mutation(
        "adopt a shared prefix twice",
        "server/cache/adoption.py",
        "host_pages[walk.pages :].copy()\n",
        "host_pages[: len(host_pages) - walk.pages].copy()\n",
        f"{TIERS}::test_adopted_paths_share_their_prefix_and_give_back_what_is_left_over",
    ),
    Mutation(
        "lend without a lock",
        "server/cache/lending.py",
        "        self._residence.lock(anchor)\n",
        "",
        f"{IMPORTS}::test_lent_pages_cannot_be_evicted_and_others_can",
    ),
    Mutation(
        "lend what a reservation counts on",
        "server/cache/lending.py",
        "        return walk if self._admission.can_lock(self._residence.unlocked_pages(walk)) else None\n",
        "        return walk\n",
        f"{IMPORTS}::test_a_loan_never_breaks_a_reservation_of_the_lender",
    ),
    Mutation(
        "lend what is still arriving",
        "server/cache/lending.py",
        "self._tree.trim(walk, walk.pages - self._residence.parts(walk).resident)",
        "walk",
        f"{IMPORTS}::test_what_is_still_arriving_is_not_lent_on",
    ),
    Mutation(
        "lend the head of a prefix for its tail",
        "server/cache/lending.py",
        "(None, anchor)[first:]",
        "(None, anchor)[: walk.pages - first]",
        f"{IMPORTS}::test_only_what_is_missing_is_copied_and_only_if_it_is_enough",
    ),
    Mutation(
        "import behind what is arriving",
        "server/cache/acquisition.py",
        "        if arriving or resident == offer.pages:\n",
        "        if resident == offer.pages:\n",
        f"{IMPORTS}::test_nothing_is_imported_behind_what_is_arriving",
    ),
    Mutation(
        "leave nodes in the tree that never got pages",
        "server/cache/loading.py",
        "        self._residence.drop_bare(nodes)\n",
        "",
        f"{IMPORTS}::test_an_import_that_fails_leaves_pages_to_compute_and_nothing_in_the_tree",
    ),
    Mutation(
        "leave an ended lease's lock on what has not come",
        "server/cache/loading.py",
        "        for lease in load.ended:\n            self._withdraw(lease, above)\n",
        "",
        f"{IMPORTS}::test_a_lease_that_has_ended_holds_nothing_that_has_not_arrived",
    ),
    Mutation(
        "refuse for want of room what only an import needs",
        "server/cache/acquisition.py",
        "            with suppress(Refusal):  # what",
        "            with suppress():  # what",
        f"{IMPORTS}::test_an_import_is_never_the_reason_for_a_refusal",
    ),
    Mutation(
        "believe what a stopped pool has lent",
        "server/pools/peer_imports.py",
        "        if not _is_served(peer):",
        "        if peer is self._pool:",
        "tests/contract/test_peers.py::test_a_lender_that_is_stopped_has_lent_nothing_that_can_be_trusted",
    ),
    Mutation(
        "believe what a pool has lent until the loop hears that its memory is lost",
        "server/pools/peer_imports.py",
        "        if not _is_served(peer):",
        "        if peer.broken is not None:",
        "tests/unit/server/test_peer_imports.py::"
        "test_what_a_pool_lent_whose_gpu_is_lost_is_not_believed_though_nobody_has_heard_of_it",
    ),
    Mutation(
        "close attachments to a daemon later than the ticket's",
        "client/attach.py",
        "it.epoch < ticket.epoch]",
        "it.epoch != ticket.epoch]",
        "tests/unit/cuda/test_attached.py::test_a_ticket_of_an_earlier_daemon_costs_no_later_attachment",
    ),
    Mutation(
        "let the daemon believe that memory is unmapped which is not",
        "gpu_pool/cuda/attached.py",
        "        _for_good.append(keep)\n",
        "        pass\n",
        "tests/unit/cuda/test_attached.py::"
        "test_memory_that_cannot_be_unmapped_keeps_its_connection_as_long_as_the_process_lives",
    ),
    Mutation(
        "keep what was lent to a pool that is stopped",
        "server/pools/peer_imports.py",
        '            _end(self._peers[plan.peer], plan.loan_id, "")\n',
        "            pass\n",
        "tests/unit/server/test_peer_imports.py::test_a_pool_that_is_stopped_before_its_import_begins_gives_the_loan_back",
    ),
    Mutation(
        "answer a reused seq with another Batch's reply",
        "server/sessions/replies.py",
        "        if kept.digest != digest:\n",
        "        if kept.digest == b'':\n",
        "tests/unit/server/test_replies.py",
    ),
    Mutation(
        "call a process gone that a forked child outlives",
        "server/holder.py",
        "        self._waiting_for.discard(what)\n        if not self._waiting_for:\n",
        "        self._waiting_for.discard(what)\n        if self._waiting_for:\n",
        "tests/unit/server/test_holder.py::test_gone_means_ended_and_disconnected",
    ),
    Mutation(
        "apply a patch before the step boundary",
        "client/lease.py",
        "            self.standing.unpatched.append(self)\n",
        "            self.apply_patches()\n",
        "tests/unit/client/test_lease.py::test_patches_wait_for_the_boundary",
    ),
    Mutation(
        "keep a page that was lost while it was sealed",
        "server/journal/journal.py",
        "        valid = self._claims[kept.host_pages] == ticket.number\n",
        "        valid = kept.host_pages > 0\n",
        f"{JOURNAL}/test_journal.py::test_a_page_given_anew_while_it_is_sealed_keeps_the_later_name",
    ),
    Mutation(
        "say nothing of pages that are lost",
        "server/journal/journal.py",
        "            self._log.append(DeadRecord(held))\n",
        "",
        f"{JOURNAL}/test_torn.py::test_a_journal_cut_at_any_byte_says_what_was_flushed_before",
    ),
    Mutation(
        "forget what was written during a compaction",
        "server/journal/journal.py",
        "            new.file.append_raw(self._log.reader().read(compaction.end))\n",
        "",
        f"{JOURNAL}/test_compaction.py::test_what_happens_during_a_compaction_counts",
    ),
    Mutation(
        "leave a journal valid that cannot be written",
        "server/journal/journal.py",
        "        self.state = State.OFF if void(self._path, reason) else State.STUCK\n",
        "        self.state = State.OFF\n",
        f"{JOURNAL}/test_disk.py::test_a_full_disk_ends_journaling_and_says_so",
    ),
    Mutation(
        "adopt pages without looking at their bytes",
        "server/journal/recovery.py",
        " if checksum == page.checksum]",
        " if checksum or page]",
        f"{JOURNAL}/test_torn.py::test_pages_overwritten_behind_a_lost_record_are_dropped",
    ),
    Mutation(
        "seal pages without their namespace",
        "server/journal/seal.py",
        '        whose.update(len(part).to_bytes(4, "little") + part)\n',
        "        pass\n",
        f"{JOURNAL}/test_journal.py::test_right_bytes_in_a_wrong_place_are_dropped",
    ),
)


def copy_tree(target: Path) -> None:
    """A copy that imports as `radixd` ahead of the installed one."""
    ignore = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignore)
        elif source.exists():
            shutil.copy(source, target / name)
    (target / "radixd").mkdir()
    for package, folder in PACKAGES.items():
        (target / "radixd" / package).symlink_to(target / folder)


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def tests_pass(tree: Path, *selection: str) -> bool:
    """Whether they do; any other outcome than success or failed tests is an error."""
    ran = run(tree, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *selection)
    if ran.returncode not in (0, 1):
        raise SystemExit(f"pytest {' '.join(selection)} did not run:\n{ran.stdout[-4000:]}{ran.stderr[-2000:]}")
    return ran.returncode == 0


def verdict(tree: Path, mutation: Mutation) -> str:
    """Plants the fault, runs its tests, and takes it out again."""
    path = tree / mutation.path
    source = path.read_text()
    if source.count(mutation.old) != 1:
        return f"DOES NOT APPLY: {source.count(mutation.old)} places in {mutation.path}"
    path.write_text(source.replace(mutation.old, mutation.new))
    try:
        return "SURVIVED" if tests_pass(tree, mutation.tests) else "killed"
    finally:
        path.write_text(source)


def main() -> int:
    """Prints a line for each fault."""
    chosen = [mutation for mutation in MUTATIONS if not sys.argv[1:] or mutation.name in sys.argv[1:]]
    with tempfile.TemporaryDirectory(prefix="radixd-mutations-") as folder:
        tree = Path(folder).resolve()
        copy_tree(tree)
        found = run(tree, "-c", "import radixd.server; print(*radixd.server.__path__)").stdout.strip()
        if Path(found).resolve() != tree / "server":
            raise SystemExit(f"the copy's packages are not the ones imported, but {found}")
        if not tests_pass(tree, *sorted({mutation.tests for mutation in chosen})):
            raise SystemExit("the tests fail without any fault")
        outcomes = []
        for mutation in chosen:
            outcomes.append(verdict(tree, mutation))
            print(f"{mutation.name:<58} {outcomes[-1]:<10} {mutation.tests}", flush=True)
    killed = outcomes.count("killed")
    print(f"{killed} of {len(outcomes)} faults killed")
    return 0 if killed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
