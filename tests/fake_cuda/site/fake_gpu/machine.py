"""The machine's state, one JSON file in the shared directory: its GPUs, and what a test has done to them.

Layout of the directory: `machine.json`, `version` (eight bytes that every writer bumps after it has replaced the JSON),
`allocations/` (see allocation.py), `violations/` and `leaks/` (one text file a process).
"""

import json
import mmap
from dataclasses import asdict, dataclass, replace
from pathlib import Path

VERSION_BYTES = 8


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver describes it. `uuid` is 32 hex digits, `memory` bytes."""

    uuid: str
    memory: int
    pci_bus: int
    attributes: dict[str, int]
    name: str = "Fake H200"

    @property
    def pci_bus_id(self) -> str:
        """As cudaDeviceGetPCIBusId prints it."""
        return f"0000:{self.pci_bus:02X}:00.0"


@dataclass(frozen=True)
class Fault:
    """Make `call` return `error`: at its nth time in each process (1 is the next one), or always where nth is None."""

    id: int
    call: str
    error: str
    nth: int | None
    sticky: bool
    pid: int | None
    gpu: int | None


@dataclass(frozen=True)
class State:
    """All that can change. `paused` GPUs execute nothing, `lost` ones (index → error) fail every call."""

    gpus: tuple[Gpu, ...]
    delay_s: float
    paused: tuple[int, ...] = ()
    lost: tuple[tuple[int, str], ...] = ()
    faults: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "State":
        """What `text` wrote."""
        fields = json.loads(text)
        return cls(
            gpus=tuple(Gpu(**gpu) for gpu in fields["gpus"]),
            delay_s=fields["delay_s"],
            paused=tuple(fields["paused"]),
            lost=tuple((gpu, error) for gpu, error in fields["lost"]),
            faults=tuple(Fault(**fault) for fault in fields["faults"]),
        )

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


class Machine:
    """The state as last read, and re-read whenever its version has moved: eight bytes looked at in shared memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with (root / "version").open("r+b") as file:
            self._version = mmap.mmap(file.fileno(), VERSION_BYTES)
        self._read: tuple[bytes, State] = (b"", State((), 0.0))

    @property
    def state(self) -> State:
        """The newest."""
        version, read = self._version[:VERSION_BYTES], self._read
        if version != read[0]:
            self._read = read = (version, State.parse((self.root / "machine.json").read_text()))
        return read[1]  # another thread may just put an older one into self._read

    def change(self, **fields: object) -> None:
        """Replace fields of the state. One writer at a time: the test's process."""
        self.write(replace(self.state, **fields))  # type: ignore[arg-type]

    def write(self, state: State) -> None:
        """Publish a whole state."""
        fresh = self.root / "machine.json.new"
        fresh.write_text(state.text())
        fresh.replace(self.root / "machine.json")
        bumped = int.from_bytes(self._version[:VERSION_BYTES], "little") + 1
        self._version[:VERSION_BYTES] = bumped.to_bytes(VERSION_BYTES, "little")

    @classmethod
    def create(cls, root: Path, state: State) -> "Machine":
        """A fresh directory's."""
        for folder in ("allocations", "violations", "leaks"):
            (root / folder).mkdir()
        (root / "version").write_bytes(bytes(VERSION_BYTES))
        machine = cls(root)
        machine.write(state)
        return machine
