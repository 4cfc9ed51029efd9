"""The systemd unit, checked by systemd where it is installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from radixd.server.cli.parser import build_parser
from radixd.server.config import Config
from radixd.server.sessions.liveness import TICK_SECONDS
from tests.unit.deploy.manifests import ROOT

UNIT = ROOT / "deploy/systemd/radixd.service"
RADIXD = "/opt/radixd/bin/radixd"
EXPOSURE = 2.5
"""Of 10; systemd counts what the GPUs and the sockets need as exposed too."""


def setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(value)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit as it would be with its program in place."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(RADIXD, sys.executable))
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def test_systemd_accepts_it(installed: Path) -> None:
    result = analyze("verify", "--man=no", str(installed))
    about_it = [line for line in result.stderr.splitlines() if UNIT.name in line]
    assert (result.returncode, about_it) == (0, [])


def test_systemd_notices_what_is_wrong(installed: Path) -> None:
    installed.write_text(installed.read_text().replace("WatchdogSec=30s", "WatchdogSec=soon"))
    assert UNIT.name in analyze("verify", "--man=no", str(installed)).stderr


def test_it_is_hardened(installed: Path) -> None:
    result = analyze("security", "--offline=true", f"--threshold={int(EXPOSURE * 10)}", str(installed))
    assert result.returncode == 0, result.stdout[-200:]


def test_its_command_is_radixds() -> None:
    program, *arguments = setting("ExecStart").split()
    assert program == RADIXD
    assert build_parser().parse_args(arguments).command == "serve"


def test_a_bad_configuration_is_not_tried_again(tmp_path: Path) -> None:
    assert "ExecStartPre=" not in UNIT.read_text(), "its exit status would prevent no restart"
    (tmp_path / "bad.toml").write_text("pools = 1\n")
    command = [Path(sys.executable).with_name("radixd"), "serve", "--config", tmp_path / "bad.toml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert str(result.returncode) == setting("RestartPreventExitStatus"), result.stderr
    assert "radixd serve: pools" in result.stderr


def test_it_restricts_no_devices() -> None:
    text = UNIT.read_text()
    for name in ("ProtectClock", "PrivateDevices", "DevicePolicy", "DeviceAllow"):
        assert f"\n{name}=" not in text, "the GPUs"


def test_the_watchdog_allows_many_ticks() -> None:
    assert setting("Type") == "notify"
    assert int(setting("WatchdogSec").removesuffix("s")) >= 10 * TICK_SECONDS


def test_stopping_takes_longer_than_the_drain() -> None:
    assert 60 * int(setting("TimeoutStopSec").removesuffix("min")) > 2 * Config.drain_seconds


def test_the_user_is_declared() -> None:
    declared = (UNIT.parent / "radixd.sysusers.conf").read_text()
    assert f"\nu {setting('User')} " in declared
