#!/usr/bin/env bash
# Installs radixd's daemon from a source tree into a new virtual environment, at the versions that the tests run with.
# Usage: deploy/install.sh SOURCE PREFIX
# The image is built by this, and a test runs it. Nothing is compiled: every dependency must come as a wheel.
set -euo pipefail

source=$1
prefix=$2

pip() {
    python3 -m pip --disable-pip-version-check --progress-bar off "$@"
}

wheels=$(mktemp -d)
trap 'rm -r "$wheels"' EXIT

pip wheel --quiet --no-deps --wheel-dir "$wheels" "$source"
python3 -m venv --without-pip "$prefix"
built=("$wheels"/radixd-*.whl)
pip --python "$prefix/bin/python" install --quiet --only-binary :all: --constraint "$source/constraints.txt" "${built[0]}[server]"
