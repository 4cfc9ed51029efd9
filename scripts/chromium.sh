#!/usr/bin/env bash
# Unpacks Debian's headless Chromium, with whatever it needs that this machine lacks, and prints its launcher's path.
# Nothing is installed. CHROMIUM=/path/to/one names another. Fails with the reason where it cannot be had.
set -euo pipefail

folder=${XDG_CACHE_HOME:-$HOME/.cache}/radixd/chromium
launcher=$folder/unpacked/chromium
packages=(chromium-headless-shell fonts-dejavu-core)

if [[ -n ${CHROMIUM:-} ]]; then
    echo "$CHROMIUM"
    exit
fi
if [[ ! -x $launcher ]]; then
    command -v apt-get dpkg > /dev/null || { echo "chromium comes as Debian packages, and this is no Debian" >&2; exit 1; }
    download=$(mktemp -d)
    trap 'rm -rf "$download"' EXIT
    mkdir -p "$folder"
    cd "$download"
    get() {
        local missing
        missing=$(apt-get install --simulate --no-install-recommends "${packages[@]}" | awk '/^Inst/ { print $2 }')
        # shellcheck disable=SC2086  # one word a package
        apt-get download -qq -o APT::Sandbox::User="$(id -un)" chromium-headless-shell $missing
    }
    if ! get 2> reason; then
        # No package lists yet, or old ones.
        apt-get update -qq 2>> reason && get 2>> reason || { tail -n 2 reason >&2; exit 1; }
    fi
    mkdir -p unpacked/root
    for package in *.deb; do
        dpkg -x "$package" unpacked/root
    done
    libraries=$(cd unpacked && find root/usr/lib -name '*.so*' -printf '%h\n' | grep -v /lib/chromium | sort -u | sed 's|^|$here/|' | paste -sd:)
    cat > unpacked/chromium <<END
#!/bin/sh
here=$folder/unpacked
export LD_LIBRARY_PATH="$libraries" XDG_DATA_DIRS="\$here/root/usr/share:/usr/local/share:/usr/share"
exec "\$here/root/usr/lib/chromium/chromium-headless-shell" "\$@"
END
    chmod +x unpacked/chromium
    # Whole, or not at all: others may be doing the same.
    mv -T unpacked "$folder/unpacked" 2> /dev/null || [[ -x $launcher ]]
fi
echo "$launcher"
