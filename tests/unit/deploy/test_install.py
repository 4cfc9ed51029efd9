"""What deploy/install.sh refuses, before it makes anything; tests/e2e/test_image_install.py runs the rest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.deploy.manifests import ROOT

SCRIPT = ROOT / "deploy/install.sh"
REFUSED = 2
SYSTEM_PYTHON = "/usr/bin/python3"
USABLE = "import pip, venv, sys; assert sys.version_info >= (3, 11)"
REACHABLE = Path("/opt/radixd-of-a-test")
"""Never made: the source that the tests name is not there."""


def install(*arguments: str | Path, first_on_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = f"{first_on_path}:/usr/bin:/bin" if first_on_path else "/usr/bin:/bin"
    command = [SCRIPT, ROOT / "no-such-source", *arguments]
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)


def python_in(folder: Path, script: str | None = None) -> Path:
    """A folder for PATH: a script as its python3, or a link to this one's."""
    folder.mkdir()
    if script is None:
        (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    else:
        (folder / "python3").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "python3").chmod(0o755)
    return folder


def test_a_python_that_the_daemons_user_cannot_reach_is_refused(tmp_path: Path) -> None:
    closed = python_in(tmp_path / "closed")
    closed.chmod(0o700)
    result = install(REACHABLE, first_on_path=closed)
    assert result.returncode == REFUSED
    assert result.stderr.startswith(f"install.sh: {closed}/python3 lies under {closed}, which other users cannot enter")


def test_whoever_runs_it_alone_may_keep_it_closed(tmp_path: Path) -> None:
    closed = python_in(tmp_path / "closed")
    closed.chmod(0o700)
    result = install(tmp_path / "prefix", "--private", first_on_path=closed)
    assert result.returncode not in (0, REFUSED)
    assert "no-such-source" in result.stderr, "it went on to the source"


def test_a_prefix_that_the_daemons_user_cannot_reach_is_refused(tmp_path: Path) -> None:
    if not Path(SYSTEM_PYTHON).exists() or subprocess.run([SYSTEM_PYTHON, "-c", USABLE], check=False).returncode:
        pytest.skip("the system's python3 would be refused first")
    tmp_path.chmod(0o700)
    result = install(tmp_path / "prefix")
    assert result.returncode == REFUSED
    assert f"install.sh: {tmp_path}/prefix lies under " in result.stderr
    went_on = install(REACHABLE)
    assert went_on.returncode != REFUSED, went_on.stderr
    assert not REACHABLE.exists()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('[ "$1" = --version ] && echo Python 3.9.2', "Python 3.9.2 is too old: Python 3.11 or later"),
        (f'exec {sys.executable} -I -S "$@"', "has no pip (Debian: apt-get install python3-pip)"),
    ],
)
def test_a_python_that_cannot_install_is_refused(tmp_path: Path, script: str, why: str) -> None:
    result = install(REACHABLE, first_on_path=python_in(tmp_path / "bin", script))
    assert result.returncode == REFUSED
    assert why in result.stderr
