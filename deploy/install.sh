#!/usr/bin/env bash
# Installs radixd's daemon from a source tree into a new virtual environment, at the versions that the tests run with.
# Usage: deploy/install.sh SOURCE PREFIX
# The image is built by this, and a test runs it. Nothing is compiled: every dependency must come as a wheel.
set -euo pipefail

source=$1
prefix=$2
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore

wheels=$(mktemp -d)
trap 'rm -r "$wheels"' EXIT

python3 -m pip wheel --quiet --no-deps --wheel-dir "$wheels" "$source"
python3 -m venv --without-pip "$prefix"
built=("$wheels"/radixd-*.whl)
python3 -m pip --python "$prefix/bin/python" install --quiet \
    --only-binary :all: --constraint "$source/constraints.txt" "${built[0]}[server,cuda]"
