#!/usr/bin/env bash
# unpack.sh: unpack the Debian packages named in packaging/apt-unpack.txt under
# build/unpacked, without installing them.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t wanted < <(sed 's/#.*//' packaging/apt-unpack.txt | xargs -n 1)
root=$PWD/build/unpacked scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch" # apt downloads as a user of its own
cd "$scratch"

download() { apt-get -qq -o APT::Sandbox::User=root download "${wanted[@]}"; }
if ! download 2>/dev/null; then
	sudo=()
	[[ $(id -u) == 0 ]] || sudo=(sudo)
	"${sudo[@]}" apt-get -qq update
	download
fi
echo "setup: unpacking: ${wanted[*]}"
rm -rf "$root"
mkdir -p "$root"
for package in *.deb; do dpkg -x "$package" "$root"; done
