"""What lies in the pages of both tiers, as plain values: catches who copies, writes or reads too early or too late."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from radixd.server.cache.results import CopyKind, CopyPlan, PageIds

Content = object
"""What a page holds: the tokens up to its end, or something that nobody may ever read."""

TO_HOST = (CopyKind.DEMOTE, CopyKind.OFFLOAD)


@dataclass(frozen=True)
class Junk:
    """Bytes that mean nothing."""

    why: str
    number: int


@dataclass
class Step:
    """A forward pass: it reads pages and writes others, at any time until it has completed."""

    number: int
    reads: dict[int, Content] = field(default_factory=dict)
    writes: dict[int, Content] = field(default_factory=dict)

    @property
    def pages(self) -> set[int]:
        return {*self.reads, *self.writes}


@dataclass
class Running:
    """A copy that has begun, and what its sources held then."""

    plan: CopyPlan
    sources: list[Content]


class TierBytes:
    """Both tiers' pages, the copies between them in flight, and the steps that touch the device's."""

    def __init__(self) -> None:
        self.device: dict[int, Content] = {}
        self.host: dict[int, Content] = {}
        self.copies: list[Running] = []
        self.pinned: dict[int, set[int]] = {}  # device pages under copies to or from another pool, by the copy's id
        self.steps: dict[int, list[Step]] = {}  # by session, ended ones too until their processes are gone

    # --- copies

    def begin(self, plan: CopyPlan) -> None:
        """A plan reaches the copier; from now on its targets may hold anything."""
        devices, hosts = plan.device_pages.tolist(), plan.host_pages.tolist()
        assert len(devices) == len(hosts) == len(set(devices)) == len(set(hosts))
        other_devices, other_hosts = self._targets()
        if plan.kind in TO_HOST:
            assert not other_hosts & set(hosts), "two copies write to one host page"
            self.copies.append(Running(plan, [self.device.get(page) for page in devices]))
            self.host |= {page: Junk("under copy", plan.copy_id) for page in hosts}
        else:
            assert not other_devices & set(devices), "two copies write to one device page"
            self.check_unused(devices)
            self.copies.append(Running(plan, [self.host.get(page) for page in hosts]))
            self.device |= {page: Junk("under copy", plan.copy_id) for page in devices}

    def _targets(self) -> tuple[set[int], set[int]]:
        """Device and host pages that live copies write to."""
        devices, hosts = set[int](), set[int]()
        for copy in self.copies:
            if copy.plan.kind in TO_HOST:
                hosts |= set(copy.plan.host_pages.tolist())
            else:
                devices |= set(copy.plan.device_pages.tolist())
        return devices, hosts

    def end(self, *, failed: bool) -> int:
        """The oldest copy ends; a failed one has written half of its pages. Returns its id."""
        copy = self.copies.pop(0)
        plan, junk = copy.plan, Junk("under copy", copy.plan.copy_id)
        source, target = (self.device, self.host) if plan.kind in TO_HOST else (self.host, self.device)
        sources, targets = plan.device_pages.tolist(), plan.host_pages.tolist()
        if plan.kind not in TO_HOST:
            sources, targets = targets, sources
        assert [source.get(page) for page in sources] == copy.sources, f"{plan.kind}: a source changed under the copy"
        assert all(target[page] == junk for page in targets), f"{plan.kind}: a target was written under the copy"
        written = len(targets) // 2 if failed else len(targets)
        target.update(zip(targets[:written], copy.sources[:written], strict=True))
        return plan.copy_id

    def lose_device(self) -> None:
        """The daemon dies: what was under a copy is torn, and the device is empty."""
        self.device.clear()
        self.copies.clear()
        self.steps.clear()

    # --- steps

    def launch(self, session: int, step: Step) -> None:
        self.steps.setdefault(session, []).append(step)

    def complete(self, session: int, completed: int) -> None:
        """Steps end: what they read must still be there, what they write is there from now on."""
        steps = self.steps.get(session, [])
        while steps and steps[0].number <= completed:
            step = steps.pop(0)
            for page, content in step.reads.items():
                assert self.device.get(page) == content, f"step {step.number} read page {page} after it had changed"
            self.device |= step.writes

    def unlock(self, session: int, cached: set[int]) -> None:
        """The session ends, its processes perhaps not: what its steps read of the tree's pages is void from now on."""
        for step in self.steps.get(session, []):
            step.reads = {page: content for page, content in step.reads.items() if page not in cached}

    def check_unused(self, pages: Iterable[int]) -> None:
        """Pages handed out as new are under no copy and in no step."""
        new = set(pages)
        for copy in self.copies:
            assert not new & set(copy.plan.device_pages.tolist()), f"pages of {copy.plan} were handed out"
        for copy_id, pages in self.pinned.items():
            assert not new & pages, f"pages of copy {copy_id} were handed out"
        for session, steps in self.steps.items():
            for step in steps:
                assert not new & step.pages, f"pages of step {step.number} of session {session} were handed out"

    def check_device(self, pages: PageIds, contents: list[Content]) -> None:
        held = [self.device.get(page) for page in pages.tolist()]
        assert held == contents, "device pages hold other bytes than the tree says"

    def check_host(self, pages: PageIds, contents: list[Content]) -> None:
        held = [self.host.get(page) for page in pages.tolist()]
        assert held == contents, "host pages hold other bytes than the tree says"
