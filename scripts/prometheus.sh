#!/usr/bin/env bash
# Unpacks Debian's prometheus package, which holds promtool too, and prints the folder of both programs. Nothing is
# installed: the package would start a service. Fails with the reason where it cannot be had.
set -euo pipefail

folder=${XDG_CACHE_HOME:-$HOME/.cache}/radixd/prometheus
programs=$folder/unpacked/usr/bin

if [[ ! -x $programs/promtool ]]; then
    command -v apt-get dpkg > /dev/null || { echo "prometheus comes as a Debian package, and this is no Debian" >&2; exit 1; }
    download=$(mktemp -d)
    trap 'rm -rf "$download"' EXIT
    mkdir -p "$folder"
    cd "$download"
    get() { apt-get download -qq -o APT::Sandbox::User="$(id -un)" prometheus; }
    if ! get 2> reason; then
        # No package lists yet, or old ones.
        apt-get update -qq 2>> reason && get 2>> reason || { tail -n 2 reason >&2; exit 1; }
    fi
    dpkg -x prometheus_*.deb unpacked
    # Whole, or not at all: others may be doing the same.
    mv -T unpacked "$folder/unpacked" 2> /dev/null || [[ -x $programs/promtool ]]
fi
echo "$programs"
