#!/usr/bin/env bash
# Installs radixd's daemon from a source tree into a new virtual environment, at the versions that the tests run with.
# Usage: deploy/install.sh SOURCE PREFIX [--private]
# The image is built by this, and a test runs it. Nothing is compiled: every dependency must come as a wheel.
# --private: nobody but whoever installs it will run it. Else a Python or a PREFIX that another user, such as radixd, cannot
# reach is refused, with exit status 2, as is a Python that is too old or has no pip.
set -euo pipefail

source=$1
prefix=$2
private=${3:-}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore

refuse() {
    echo "install.sh: $1" >&2
    exit 2
}

# Refuses a path where others may not enter each folder, as it is written and as its links lead. Permissions alone count:
# where an ACL lets them in, say --private.
check_others_reach() {
    local path folder
    for path in "$(realpath -ms "$1")" "$(realpath -m "$1")"; do
        folder=$path
        while [[ $folder != / ]]; do
            folder=$(dirname "$folder")
            if [[ -d $folder ]] && (( (8#$(stat -L -c %a "$folder") & 1) == 0 )); then
                refuse "$path lies under $folder, which other users cannot enter, the daemon's among them: $2"
            fi
        done
    done
}

command -v python3 > /dev/null || refuse "no python3 on PATH"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || refuse "$(python3 --version) is too old: Python 3.11 or later"
python3 -c 'import pip' 2> /dev/null || refuse "$(command -v python3) has no pip (Debian: apt-get install python3-pip)"
python3 -c 'import venv' 2> /dev/null || refuse "$(command -v python3) has no venv (Debian: apt-get install python3)"
if [[ $private != --private ]]; then
    # The environment's python will be a link to this one, which behind a shim or in another environment is not PATH's.
    python=$(python3 -c 'import sys; print(sys._base_executable)')
    check_others_reach "$python" "put another python3 first on PATH, such as /usr/bin, or say --private"
    check_others_reach "$prefix" "choose another PREFIX, or say --private"
    # Root's own may keep others out of what is installed.
    umask 022
fi

wheels=$(mktemp -d)
trap 'rm -r "$wheels"' EXIT

python3 -m pip wheel --quiet --no-deps --wheel-dir "$wheels" "$source"
python3 -m venv --without-pip "$prefix"
built=("$wheels"/radixd-*.whl)
python3 -m pip --python "$prefix/bin/python" install --quiet \
    --only-binary :all: --constraint "$source/constraints.txt" "${built[0]}[server,cuda]"
