#!/usr/bin/env bash
# Makes the virtual environment DIR if it is not there, then runs `pip install` in it with the remaining arguments.
# Usage: scripts/venv.sh DIR PIP_ARGUMENT...
# PYTHON chooses the interpreter; without it the first Python of at least 3.11 on the PATH is taken.
set -euo pipefail

dir=$1
shift

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "radixd needs Python 3.11 or newer and found none; install one, or name it: PYTHON=/path/to/python3.12 make ..." >&2
    return 1
}

# Debian and Ubuntu ship venv's other half, ensurepip, as a package of its own.
install_ensurepip() {
    local package=$1 as_root=()
    if ! command -v apt-get >/dev/null; then
        echo "this Python lacks ensurepip, which 'python3 -m venv' needs; install it and run make again" >&2
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "ask an administrator for: apt-get install $package" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "==> apt-get install $package"
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "$package" >/dev/null
}

if ! [ -x "$dir/bin/pip" ]; then
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_ensurepip "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    echo "==> making $dir with $("$python" --version)"
    "$python" -m venv "$dir"
fi

echo "==> installing into $dir (the first time takes minutes)"
"$dir/bin/pip" install --disable-pip-version-check --progress-bar off "$@" 2>&1 |
    awk '/^ *(Downloading|Building|Installing)/ { print "    " substr($0, 1, 110); fflush(); next }
         /ERROR/ { failed = 1 }
         failed { print; fflush() }'
