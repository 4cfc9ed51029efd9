#!/usr/bin/env bash
# Generates the Python stubs of every proto/radixd/v1/*.proto, with their .pyi files, into the tree under OUT_DIR: messages and
# what clients call. The daemon needs no generated half of a server.
# Usage: scripts/gen_proto.sh [OUT_DIR]     (default: proto, the committed stubs)
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-proto}
venv=.venv-proto
requirements=scripts/proto-requirements.txt

if ! cmp -s "$requirements" "$venv/installed.txt"; then
    scripts/venv.sh "$venv" -r "$requirements"
    cp "$requirements" "$venv/installed.txt"
fi

mkdir -p "$out/radixd/v1"
rm -f "$out"/radixd/v1/*_pb2.py* "$out"/radixd/v1/*_pb2_grpc.py*
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
protoc() {
    PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m grpc_tools.protoc --proto_path=proto --proto_path="$site" "$@"
}

protoc --python_out="$out" --mypy_out=quiet:"$out" proto/radixd/v1/*.proto
# only files with a service, or the others get empty gRPC stubs
mapfile -t services < <(grep -l '^service ' proto/radixd/v1/*.proto)
protoc --grpc_python_out="$out" --mypy_grpc_out=quiet:"$out" "${services[@]}"
"$venv/bin/python" scripts/trim_stubs.py "$out"/radixd/v1/*_pb2_grpc.py*
