"""A launcher starts itself anew once, with glibc's settings."""

import os
import subprocess
import sys

from radixd.server.malloc import TUNABLES

PROGRAM = """
import os, sys
from radixd.server.malloc import apply_malloc_settings
print("started", sys.argv[1:])
sys.stdout.flush()
apply_malloc_settings()
print({name: os.environ.get(name) for name in sys.argv[2:]})
"""


def run(environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, "an arg", *TUNABLES]
    clean = {name: value for name, value in os.environ.items() if name not in TUNABLES}
    return subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_once_with_the_same_arguments() -> None:
    first, second, settings = run({})
    assert first == second == f"started {['an arg', *TUNABLES]}"
    assert settings == str(dict(TUNABLES))


def test_an_operators_choice_stays() -> None:
    started, settings = run({"MALLOC_TOP_PAD_": "1"})
    assert started.startswith("started")
    assert "'MALLOC_TOP_PAD_': '1'" in settings
