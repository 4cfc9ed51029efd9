"""The image without a container engine: its install steps, its user and its entry point, on a root that is read-only.

The environment is made by the script that the Dockerfile runs, from the files that its .dockerignore lets through, with
this machine's Python in place of the image's. What is left to a container engine is the base image alone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.deploy.manifests import ROOT

UID = 10001
PATIENCE_S = 280
DOCKERIGNORE = ROOT / "deploy/Dockerfile.dockerignore"

LIFE = """
set -eu
# Everything is read-only but the two folders that the daemon has as volumes.
mount --make-rprivate /
mount --bind / /mnt && mount --bind -o remount,ro,bind /mnt
mount --bind "$VOLUMES" "/mnt$VOLUMES"
mount -t proc proc /mnt/proc
# The image's Python is anybody's; this machine's may lie in a home directory.
if ! chroot --userspec=$UID_:$UID_ --groups= /mnt test -x "$PYTHON/bin/python3"; then
    mount -t tmpfs -o mode=755 tmpfs "/mnt/$(echo "$PYTHON" | cut -d/ -f2)"
    mkdir -p "/mnt$PYTHON" && mount --bind "$PYTHON" "/mnt$PYTHON" && mount -o remount,ro,bind "/mnt$PYTHON"
fi
mount --rbind /dev /mnt/dev
cd /mnt
exec chroot --userspec=$UID_:$UID_ --groups= . /usr/bin/env -i PATH="$PREFIX/bin:/usr/bin:/bin" HOME=/nonexistent \
    PYTHONDONTWRITEBYTECODE=1 VOLUMES="$VOLUMES" /bin/sh -c "$1"
"""
AS_IN_THE_IMAGE = """
set -eu
cd /
! touch /tmp/x 2>/dev/null || exit 90  # anybody may, where anything may be written
socket="$VOLUMES/run/r.sock"
radixd serve --socket "$socket" --geometry tiny --bytes 8MiB --host-bytes 8MiB --state-dir "$VOLUMES/state" \
    --metrics off 2>"$VOLUMES/run/log" &
until radixd health radixd.v1.Cache --timeout 5 --target "$socket"; do
    kill -0 $! 2>/dev/null || { cat "$VOLUMES/run/log"; exit 91; }
    sleep 0.2
done
radixd status --target "$socket"
kill -TERM $!
wait $!
"""


@pytest.fixture(scope="module")
def prefix() -> Iterator[Path]:
    """A new environment, which any user may read."""
    with tempfile.TemporaryDirectory(prefix="rx") as name:
        folder = Path(name)
        folder.chmod(0o755)
        copy_context(folder / "src")
        path = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
        # Private, for this machine's Python may lie in a home directory.
        command = [folder / "src/deploy/install.sh", folder / "src", folder / "radixd", "--private"]
        subprocess.run(command, env={**os.environ, "PATH": path}, check=True)
        yield folder / "radixd"


def copy_context(into: Path) -> None:
    """What `docker build` would send: the lines of .dockerignore that begin with "!"."""
    lines = DOCKERIGNORE.read_text().splitlines()
    kept = [line[1:].rstrip("/") for line in lines if line.startswith("!")]
    for name in kept:
        source, target = ROOT / name, into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {line.lower().replace("_", "-") for line in lines if "==" in line}


@pytest.mark.slow
def test_every_package_is_the_pinned_one_and_none_can_compile(prefix: Path) -> None:
    program = (
        "from importlib.metadata import distributions\n"
        "for it in distributions(): print(f\"{it.metadata['Name']}=={it.version.partition('+')[0]}\")"
    )
    listed = subprocess.run([prefix / "bin/python", "-c", program], check=True, capture_output=True, text=True).stdout
    found = {line.lower().replace("_", "-") for line in listed.split()}
    assert {line.partition("==")[0] for line in found - pinned()} == {"radixd"}
    assert not list(prefix.glob("bin/pip*"))


@pytest.mark.slow
def test_it_lives_as_another_user_on_a_read_only_root(prefix: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can lay a read-only root and become another user")
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
        pytest.skip("this machine allows no mount namespaces")
    volumes = Path(tempfile.mkdtemp(prefix="rx"))
    try:
        for folder in (volumes, volumes / "run", volumes / "state"):
            folder.mkdir(mode=0o700, exist_ok=True)
            os.chown(folder, UID, UID)
        result = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", LIFE, "sh", AS_IN_THE_IMAGE],
            env={
                **os.environ,
                "VOLUMES": str(volumes),
                "PREFIX": str(prefix),
                "PYTHON": sys.base_prefix,
                "UID_": str(UID),
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert "SERVING" in result.stdout
        assert "tiny" in result.stdout
        assert (volumes / "state/default/journal").stat().st_uid == UID
    finally:
        shutil.rmtree(volumes)
