#!/usr/bin/env bash
# On a machine with NVIDIA GPUs: builds, runs the GPU tests on the real card, measures its copies, and prints one table.
#
#   scripts/gpu_check.sh [FOLDER]      results go to FOLDER, build/gpu_check by default
#
# PYTHON names a Python (3.11 or later) whose torch sees the GPU; python3 by default. Everything else is installed into
# a venv beside it, which sees its packages. The tests end after five minutes at most, the measurements after 200 s.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
results=${1:-build/gpu_check}

why=$("$python" -c '
try:
    import torch
except ImportError:
    raise SystemExit("torch is not installed")
if torch.version.cuda is None:
    raise SystemExit(f"its torch {torch.__version__} was built without CUDA")
if not torch.cuda.is_available():
    raise SystemExit("its torch finds no NVIDIA driver, or no GPU")
' 2>&1) || {
    echo "gpu_check: $python has no torch that sees a GPU (${why##*$'\n'}); set PYTHON to one that has" >&2
    exit 2
}
mkdir -p "$results"
"$python" -m venv --system-site-packages .venv-gpu
.venv-gpu/bin/python -m pip install -q -e '.[server,attach,cuda]' pytest pytest-asyncio pytest-timeout

export RADIXD_REAL_CUDA=1
tests=0
timeout 300 .venv-gpu/bin/python -m pytest tests/gpu -m gpu --junitxml="$results/tests.xml" || tests=$?
timeout 200 .venv-gpu/bin/python -m bench --only gpu --json "$results/bench.json" || tests=$?
.venv-gpu/bin/python scripts/gpu_table.py "$results/tests.xml" "$results/bench.json" | tee "$results/table.md"
exit "$tests"
