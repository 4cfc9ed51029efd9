"""Headless Chromium, driven through its debugging pipe."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.daemon_process import eventually

SCRIPT = Path(__file__).parents[2] / "scripts" / "chromium.sh"


class NoBrowser(Exception):
    """There is none; the message says why."""


def find_chromium() -> str:
    """The browser that CHROMIUM names, or Debian's, unpacked now if it was not before. Raises NoBrowser."""
    found = subprocess.run((str(SCRIPT),), capture_output=True, text=True, check=False)
    if found.returncode:
        raise NoBrowser(found.stderr.strip())
    return found.stdout.strip()


class Browser:
    """One tab. What its scripts throw or print as errors is kept, with what the security policy has blocked."""

    def __init__(self, program: str, profile: Path, width: int = 1280, height: int = 900) -> None:
        to_browser, commands = os.pipe()
        answers, from_browser = os.pipe()
        flags = (
            "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
            f"--window-size={width},{height}", f"--user-data-dir={profile}",
        )  # fmt: skip
        # Chromium reads its commands from descriptor 3 and answers on 4.
        script = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(
            ("bash", "-c", script, "chromium", str(to_browser), str(from_browser), program, *flags),
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._last = 0
        self._tab: str | None = None
        self.errors: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._tab = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Go there, and come back once its scripts run."""
        self._call("Page.navigate", url=url)
        self.eventually("location.href !== 'about:blank' && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The JSON value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def eventually(self, expression: str) -> None:
        """Wait until it is true."""
        eventually(lambda: bool(self.evaluate(expression)))

    def prefer(self, scheme: str) -> None:
        """Ask the page for `light` or `dark` colours."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path, height: int) -> None:
        """A PNG of the page's upper part."""
        self._call("Emulation.setDeviceMetricsOverride", width=1280, height=height, deviceScaleFactor=1, mobile=False)
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._commands.close()
        self._answers.close()

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._tab:
            message["sessionId"] = self._tab
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        received = bytearray()
        while not received.endswith(b"\0"):
            received += self._answers.read(1) or b"\0"
        assert len(received) > 1, "the browser has gone"
        message: dict[str, Any] = json.loads(received[:-1])
        return message

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.errors.append(event["params"]["entry"]["text"])
