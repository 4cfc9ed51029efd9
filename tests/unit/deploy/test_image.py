"""The image as its Dockerfile says it; tests/e2e/test_image_install.py runs its steps."""

import os
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from radixd.gpu_pool.paths import default_socket
from radixd.server.cli.parser import build_parser
from tests.unit.deploy.manifests import BASE, ROOT, loaded, of_kind

DOCKERFILE = ROOT / "deploy/Dockerfile"


def stages() -> list[list[tuple[str, str]]]:
    """(instruction, its text) of each stage, continued lines joined."""
    found: list[list[tuple[str, str]]] = []
    lines = (line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#"))
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        instruction, _, text = line.partition(" ")
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, " ".join(text.split())))
    return found


def only(stage: list[tuple[str, str]], instruction: str) -> str:
    (text,) = (text for name, text in stage if name == instruction)
    return text


def command(text: str) -> list[str]:
    """What an exec form runs."""
    return [word.strip(' "') for word in text[text.index("[") + 1 : text.rindex("]")].split(",")]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("no hadolint for this machine")
    result = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_last_stage_gets_an_environment_and_no_tools() -> None:
    build, last = stages()
    assert only(last, "COPY") == "--from=build /opt/radixd /opt/radixd"
    assert only(build, "RUN").endswith("deploy/install.sh /src /opt/radixd")
    assert only(last, "FROM") == only(build, "FROM").removesuffix(" AS build"), "the environment is its Python's"
    assert "-slim" in only(last, "FROM"), "without a compiler"
    assert not {"apt-get", "pip"} & set(only(last, "RUN").split())


def test_it_runs_as_the_user_of_the_manifests() -> None:
    last = stages()[-1]
    user = of_kind(loaded(BASE / "engine.yaml"), "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert only(last, "USER") == f"{user['runAsUser']}:{user['runAsGroup']}"
    after = [name for name, _ in reversed(last)]
    assert "RUN" not in takewhile(lambda name: name != "USER", after), "nothing is installed as that user"
    assert f"--owner {user['runAsUser']}" in only(last, "RUN")
    assert str(default_socket().parent) in only(last, "RUN").split() or "XDG_RUNTIME_DIR" in only(last, "ENV")


def test_its_commands_are_radixds() -> None:
    last = stages()[-1]
    assert command(only(last, "ENTRYPOINT")) == ["radixd"]
    assert build_parser().parse_args(command(only(last, "CMD"))).command == "serve"
    program, *arguments = command(only(last, "HEALTHCHECK"))
    asked = build_parser().parse_args(arguments)
    assert (program, asked.command, asked.service, asked.timeout) == ("radixd", "health", "radixd.v1.Cache", 5.0)
