#!/usr/bin/env bash
# setup.sh LIST...: check that Go is new enough, install the Debian packages named in scripts/apt-LIST.txt
# that are missing, and download the Go modules. For "test" it also unpacks the programs that are not to be
# installed, and for "page" what judges whether a page is accessible. A stamp under build/ makes later runs
# quick. Its key consists of the lists and the checksums of modules.
set -euo pipefail
cd "$(dirname "$0")/.."
sudo=()
[[ $(id -u) == 0 ]] || sudo=(sudo)

# need_go stops with a clear message when Go is missing or older than go.mod asks for.
need_go() {
	local want have
	want=$(awk '$1 == "go" { print $2 }' go.mod)
	have=$(cd / && go env GOVERSION 2>/dev/null || true)
	have=${have#go}
	if [[ -z $have ]]; then
		echo "Go $want or newer is needed and there is no go command in PATH." >&2
	elif [[ $(printf '%s\n' "$want" "$have" | sort -V | head -n 1) == "$want" ]]; then
		return
	elif [[ $(go env GOTOOLCHAIN) != local && $(printf '%s\n' 1.21 "$have" | sort -V | head -n 1) == 1.21 ]]; then
		return # this go downloads the one it needs by itself
	else
		echo "Go $want or newer is needed; the go command in PATH is $have." >&2
	fi
	echo "Install it from https://go.dev/dl/ (unpack to /usr/local, put /usr/local/go/bin in PATH) and run make again." >&2
	exit 1
}

install() {
	echo "setup: installing with apt-get: $*"
	"${sudo[@]}" apt-get -qq update
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "$@" >/dev/null
}

# missing prints those of the packages that are not installed.
missing() {
	local package
	for package in "$@"; do
		[[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true) == "install ok installed" ]] || echo "$package"
	done
}

# unpack unpacks packages under build/unpacked, without installing them.
unpack() (
	root=$PWD/build/unpacked scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	chmod 755 "$scratch" # apt downloads as a user of its own
	cd "$scratch"
	download() { apt-get -qq -o APT::Sandbox::User=root download "$@"; }
	download "$@" 2>/dev/null || { "${sudo[@]}" apt-get -qq update && download "$@"; }
	echo "setup: unpacking: $*"
	rm -rf "$root"
	mkdir -p "$root"
	for package in *.deb; do dpkg -x "$package" "$root"; done
)

# axe unpacks axe-core under build/axe with npm. selftests/browser/package-lock.json has its release and its
# checksum. Where there is no npm, Debian's is installed.
axe() {
	local from=selftests/browser to=build/axe
	if [[ -e $to/node_modules/axe-core/axe.min.js ]] && cmp -s $from/package-lock.json $to/package-lock.json; then
		return
	fi
	command -v npm >/dev/null || install npm
	rm -rf $to
	mkdir -p $to
	cp $from/package.json $from/package-lock.json $to/
	npm --prefix $to ci --ignore-scripts --no-audit --no-fund --silent
}

need_go
files=()
for list in "$@"; do files+=("scripts/apt-$list.txt"); done
mapfile -t sums < <(find . -name go.sum -not -path "./build/*" | sort)
stamp=build/setup-$(cat "${files[@]}" scripts/apt-unpack.txt "${sums[@]}" <(echo "$@") | sha256sum | cut -c1-16)
[[ ! -e $stamp ]] || exit 0

wanted=$(sed 's/#.*//' "${files[@]}")
mapfile -t absent < <(missing $wanted)
if ((${#absent[@]})); then
	if ! command -v apt-get >/dev/null; then
		echo "setup: this is not Debian; install what corresponds to: ${absent[*]}" >&2
		exit 1
	fi
	install "${absent[@]}"
fi
case " $* " in
*" test "*) unpack $(sed 's/#.*//' scripts/apt-unpack.txt) ;;
*" page "*) axe ;;
esac
echo "setup: downloading Go modules"
find . -name go.mod -not -path './build/*' -execdir go mod download \;
mkdir -p build
touch "$stamp"
