"""A second process that uses the fake GPUs: the test's end, and the program itself."""

import ctypes
import json
import os
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.fake_cuda.control import FakeGpus


class OtherProcess:
    """Calls functions of the runtime in a process of its own, one after the other."""

    def __init__(self, gpus: FakeGpus, visible: str | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=self._environment(gpus, visible),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    @staticmethod
    def _environment(gpus: FakeGpus, visible: str | None) -> dict[str, str]:
        env = gpus.env(visible)
        return {**env, "PYTHONPATH": env["PYTHONPATH"] + ":" + ":".join(path for path in sys.path if path)}

    def call(self, name: str, *arguments: object) -> list[Any]:
        """[the error's name, values…]: a handle's bytes as hex, which is an argument too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        answer: list[Any] = json.loads(self._process.stdout.readline())
        return answer

    def ok(self, name: str, *arguments: object) -> Any:
        """The value of a call that must succeed."""
        answer = self.call(name, *arguments)
        assert answer[0] == "cudaSuccess", answer
        return answer[1] if len(answer) == 2 else answer[1:]

    def kill(self) -> None:
        """kill -9: dead when this returns, and a zombie until the end."""
        self._process.kill()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        """In order."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        assert self._process.stdout is not None
        self._process.stdout.close()


def answer(name: str, arguments: list[Any]) -> list[Any]:
    """What a call returns, as JSON can say it. `read` is the bytes at an address."""
    from cuda.bindings import runtime as cuda

    if name == "read":
        return ["cudaSuccess", ctypes.string_at(*arguments).hex()]
    if name == "cudaIpcOpenMemHandle":
        handle = cuda.cudaIpcMemHandle_t()
        ctypes.memmove(handle.getPtr(), bytes.fromhex(arguments[0]), 64)
        arguments[0] = handle
    error, *values = getattr(cuda, name)(*arguments)
    return [error.name, *[shown(value) for value in values]]


def shown(value: Any) -> Any:
    """A handle as hex, other objects as their numbers."""
    if hasattr(value, "getPtr"):
        return ctypes.string_at(value.getPtr(), 64).hex()
    return value if value is None else int(value)


if __name__ == "__main__":
    for line in sys.stdin:
        called, *given = json.loads(line)
        print(json.dumps(answer(called, given)), flush=True)
