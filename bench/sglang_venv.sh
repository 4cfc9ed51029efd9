#!/usr/bin/env bash
# Makes .venv-sglang, where the benchmarks run SGLang's prefix caches as their reference: SGLang without its
# dependencies, and the few packages that those caches import. A CPU build of torch is enough.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -m venv .venv-sglang
pip=(.venv-sglang/bin/python -m pip install --quiet --disable-pip-version-check)
# torch first: the newest that the reference's Rust extension accepts and that was measured.
"${pip[@]}" torch==2.13.0 numpy msgspec orjson packaging psutil pydantic
"${pip[@]}" --no-deps sglang==0.5.23
.venv-sglang/bin/python -c "from bench.sglang_reference.trees import TREES, PrefixTree
for name in TREES: PrefixTree(name, pool_tokens=6400)
print('.venv-sglang is ready:', *TREES)"
