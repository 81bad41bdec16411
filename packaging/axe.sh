#!/usr/bin/env bash
# axe.sh: unpack axe-core, which judges whether a page is accessible, under build/axe with
# npm. selftests/browser/package-lock.json has its release and its checksum. Where there is
# no npm, Debian's is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

from=selftests/browser to=build/axe
if [[ -e $to/node_modules/axe-core/axe.min.js ]] && cmp -s $from/package-lock.json $to/package-lock.json; then
	exit 0
fi
if ! command -v npm >/dev/null; then
	sudo=()
	[[ $(id -u) == 0 ]] || sudo=(sudo)
	echo "setup: installing npm with apt-get"
	"${sudo[@]}" apt-get -qq update
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y npm >/dev/null
fi
rm -rf $to
mkdir -p $to
cp $from/package.json $from/package-lock.json $to/
npm --prefix $to ci --ignore-scripts --no-audit --no-fund --silent
