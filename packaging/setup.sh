#!/usr/bin/env bash
# setup.sh LIST...: install the Debian packages named in packaging/apt-LIST.txt
# that are missing, and download the Go modules; for "test" also unpack the
# programs that are not to be installed. A stamp under build/ makes later runs
# quick. Its key consists of the lists and the checksums of modules.
set -euo pipefail
cd "$(dirname "$0")/.."

files=()
for list in "$@"; do files+=("packaging/apt-$list.txt"); done
unpacks=false
[[ " $* " != *" test "* ]] || unpacks=true
mapfile -t sums < <(find . -name go.sum -not -path "./build/*" | sort)
known=("${files[@]}" "${sums[@]}")
! $unpacks || known+=(packaging/apt-unpack.txt)
stamp=build/setup-$(cat "${known[@]}" | sha256sum | cut -c1-16)
[[ -e $stamp ]] && exit 0

wanted=$(sed 's/#.*//' "${files[@]}")
missing=()
for package in $wanted; do
	status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
	[[ $status == "install ok installed" ]] || missing+=("$package")
done

install() {
	local sudo=()
	[[ $(id -u) == 0 ]] || sudo=(sudo)
	echo "setup: installing with apt-get: $*"
	"${sudo[@]}" apt-get -qq update
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "$@" >/dev/null
}

if ((${#missing[@]})); then
	if ! command -v apt-get >/dev/null; then
		echo "setup: this is not Debian; install what corresponds to: ${missing[*]}" >&2
		exit 1
	fi
	install "${missing[@]}"
fi

! $unpacks || packaging/unpack.sh

echo "setup: downloading Go modules"
find . -name go.mod -not -path './build/*' -execdir go mod download \;
mkdir -p build
touch "$stamp"
