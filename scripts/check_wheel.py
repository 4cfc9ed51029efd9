"""Builds the wheel, imports every module from it alone, and checks what the light halves leave unloaded.

An editable install hides a module that the wheel forgot, and a linter sees no import that happens at run time.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "radixd.server": ROOT / "server",
    "radixd.client": ROOT / "client",
    "radixd.gpu_pool": ROOT / "gpu_pool",
    "radixd.v1": ROOT / "proto/radixd/v1",
}
BINDINGS = ROOT / "tests/fake_cuda/site"
"""Where NVIDIA's bindings are found if they are not installed: the modules for GPUs cannot be imported without any."""

# importing the left leaves each of the right unloaded
STAYS_OUT = {
    "radixd.gpu_pool.geometry": {"torch", "grpc", "google.protobuf"},
    "radixd.gpu_pool.layout": {"torch", "grpc", "google.protobuf"},
    "radixd.gpu_pool.slots": {"torch", "grpc", "google.protobuf"},
    "radixd.gpu_pool.memory": {"radixd.gpu_pool.cuda", "grpc"},
    "radixd.client.attach": {"radixd.gpu_pool.cuda", "radixd.server"},
    "radixd.server.cache": {"torch", "grpc", "google.protobuf", "prometheus_client"},
    "radixd.client": {"torch", "radixd.server"},
}
IMPORT_ALL = """
import importlib, sys
site, bindings, *names = sys.argv[1:]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
sys.path.insert(0, site)
sys.path.append(bindings)
for name in names:
    origin = importlib.import_module(name).__file__
    assert origin.startswith(site), f"{name} came from {origin}, not from the wheel"
"""
REFUSE_LOADED = """
sys.exit(f"importing {names[0]} loads {', '.join(sorted(loaded))}" if loaded else 0)
"""


def source_modules() -> list[str]:
    """Name every module in the source folders, as the wheel should hold it; `__main__` runs when imported."""
    names = []
    for package, folder in FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            if parts[-1] != "__main__":
                names.append(".".join((package, *parts)).removesuffix(".__init__"))
    return names


def data_files() -> list[str]:
    """Name what the status page is made of, as the wheel should hold it."""
    folder = FOLDERS["radixd.server"] / "web" / "static"
    return [f"radixd/server/web/static/{file.name}" for file in sorted(folder.iterdir())]


def install_wheel(scratch: Path) -> Path:
    """Build the wheel from a copy of the tree, so that no `build/` is left in it, and unpack it into a folder."""
    tree, site = scratch / "tree", scratch / "site"
    list_files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(list_files, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "-qqq", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", scratch, tree], check=True)
    subprocess.run([*pip, "install", "--no-deps", "--target", site, *scratch.glob("radixd-*.whl")], check=True)
    return site


def import_in_child(site: Path, names: list[str], then: str = "") -> bool:
    """Import `names` from `site` in a new process, which then runs `then`; say whether all went well."""
    command = [sys.executable, "-B", "-c", IMPORT_ALL + then, str(site), str(BINDINGS), *names]
    return subprocess.run(command, cwd=site, check=False).returncode == 0


def main() -> int:
    """Return 0 when the wheel imports whole and the light halves stay light, else 1."""
    with tempfile.TemporaryDirectory() as scratch:
        site = install_wheel(Path(scratch))
        failures = [] if import_in_child(site, source_modules()) else ["a module does not import from the wheel"]
        failures += [
            f"{package}/py.typed is not in the wheel"
            for package in FOLDERS
            if not site.joinpath(*package.split("."), "py.typed").is_file()
        ]
        failures += [f"{name} is not in the wheel" for name in data_files() if not (site / name).is_file()]
        failures += [
            f"{name} does not import alone and light"
            for name, heavy in STAYS_OUT.items()
            if not import_in_child(site, [name], f"loaded = {heavy!r} & sys.modules.keys()\n" + REFUSE_LOADED)
        ]
    for failure in failures:
        print(f"wheel: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
