#!/usr/bin/env bash
# Unpacks Debian's headless Chromium, with whatever it needs that this machine lacks, into .tools/chromium. Nothing is
# installed and nothing needs root. Prints the launcher's path. Where it is there already, this takes no time.
# The package lists must be fresh: apt-get update, as root, has been run.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$PWD/.tools/chromium
launcher=$dir/chromium
if [ -x "$launcher" ]; then
    echo "$launcher"
    exit
fi
if ! command -v apt-get >/dev/null; then
    echo "no apt-get here: install Chromium yourself and name it, CHROMIUM=/path/to/chromium make test" >&2
    exit 1
fi

rm -rf "$dir"
mkdir -p "$dir/packages" "$dir/root"
wanted=$(apt-get install --simulate --no-install-recommends chromium-headless-shell fonts-dejavu-core |
    awk '/^Inst/ { print $2 }')
# As root, apt would fetch as a user of its own, who may not write here.
(cd "$dir/packages" && apt-get -qq -o APT::Sandbox::User=root download $wanted >&2)
for package in "$dir"/packages/*.deb; do
    dpkg-deb --extract "$package" "$dir/root"
done
rm -r "$dir/packages"

libraries=$(find "$dir/root/usr/lib" -name '*.so*' -printf '%h\n' | grep -v '/lib/chromium' | sort -u | paste -sd:)
cat >"$launcher" <<END
#!/bin/sh
export LD_LIBRARY_PATH="$libraries" XDG_DATA_DIRS="$dir/root/usr/share:/usr/local/share:/usr/share"
exec "$dir/root/usr/lib/chromium/chromium-headless-shell" "\$@"
END
chmod +x "$launcher"
"$launcher" --version >&2
echo "$launcher"
