"""What is under deploy/kubernetes, as kubectl would send it, and what it says of radixd."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from radixd.server.config import Config
from radixd.server.config.file import read_config

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = ROOT / "deploy/kubernetes"
BASE = KUBERNETES / "base"
UNITS = {"Mi": 2**20, "Gi": 2**30}


def loaded(path: Path) -> list[Manifest]:
    """The documents of a file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def rendered(folder: Path) -> list[Manifest]:
    """What a kustomization makes; skips where nothing here can render one."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl, which renders kustomizations: only the files that it would start from are checked")
    command = ["kubectl", "kustomize", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [document for document in yaml.safe_load_all(result.stdout) if document]


def of_kind(manifests: list[Manifest], kind: str) -> Manifest:
    """The only one."""
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """The pods that come of them."""
    for manifest in manifests:
        if manifest["kind"] == "Pod":
            yield manifest["spec"]
        elif "template" in manifest.get("spec", {}):
            yield manifest["spec"]["template"]["spec"]


def containers(pod: Manifest) -> dict[str, Manifest]:
    """All that runs as long as the pod, by name."""
    return {it["name"]: it for it in (*pod.get("initContainers", ()), *pod["containers"])}


def nbytes(quantity: str) -> int:
    """A quantity of memory."""
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


def base_config() -> Config:
    """What the daemon of the base is told to be."""
    return read_config(BASE / "radixd.toml")
