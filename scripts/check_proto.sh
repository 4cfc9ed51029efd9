#!/usr/bin/env bash
# Fails unless the committed stubs are what the .proto files generate.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
scripts/gen_proto.sh "$fresh"
if ! diff -rq --exclude='*.proto' --exclude=__init__.py --exclude=py.typed --exclude=__pycache__ \
    "$fresh/radixd/v1" proto/radixd/v1; then
    echo "the stubs are stale: run 'make proto' and commit what changes" >&2
    exit 1
fi
