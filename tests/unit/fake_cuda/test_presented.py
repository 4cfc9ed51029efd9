"""The fake presents what NVIDIA's bindings present: names, arguments, enum values, and what is no CUDA program."""

import inspect
import json
import os
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

import pytest
from cuda.bindings import runtime as cuda

from tests.fake_cuda.control import SITE

_SHOW = """
import json, sys
sys.path[:] = [path for path in sys.path if path != sys.argv[1]]
from cuda.bindings import runtime
wanted = json.loads(sys.argv[2])
shown = {}
for name in wanted["functions"]:
    head = getattr(runtime, name).__doc__.splitlines()[0]
    inside = head[head.index("(") + 1 : head.rindex(")")]
    depth, words = 0, [""]
    for letter in inside:
        depth += letter in "[("
        depth -= letter in "])"
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    shown[name] = [word.split(":")[0].split()[-1].lstrip("*") for word in words if word.strip()]
shown["enums"] = {
    name: {member: int(getattr(getattr(runtime, name), member)) for member in members}
    for name, members in wanted["enums"].items()
}
shown["flags"] = {name: getattr(runtime, name) for name in wanted["flags"]}
print(json.dumps(shown))
"""


def functions() -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(value).parameters)
        for name, value in vars(cuda).items()
        if name.startswith("cuda") and inspect.isfunction(value)
    }


def enums() -> dict[str, dict[str, int]]:
    return {
        name: {member.name: member.value for member in value}
        for name, value in vars(cuda).items()
        if inspect.isclass(value) and issubclass(value, IntEnum) and name.startswith("cuda")
    }


def flags() -> dict[str, int]:
    return {name: value for name, value in vars(cuda).items() if name.startswith("cuda") and type(value) is int}


def test_the_fake_stands_in_for_the_bindings() -> None:
    assert str(cuda.__file__).startswith(str(SITE))


@pytest.mark.skipif(
    not any((Path(path) / "cuda/bindings/_version.py").exists() for path in sys.path),
    reason="NVIDIA's bindings are not installed",
)
def test_names_arguments_and_values_are_nvidias() -> None:
    wanted = {"functions": sorted(functions()), "enums": enums(), "flags": sorted(flags())}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-c", _SHOW, str(SITE), json.dumps(wanted)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    real = json.loads(run.stdout)
    assert {name: real[name] for name in functions()} == functions()
    assert real["enums"] == enums()
    assert real["flags"] == flags()
