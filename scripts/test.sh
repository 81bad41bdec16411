#!/usr/bin/env bash
# test.sh: run the tests and checks that every change must pass, with the time of each pass and one summary.
# CONTRIBUTING.md says which levels of tests there are. Each test binary runs in namespaces of
# its own (scripts/ns). The last test checks that the machine is in the same state as before.
#
# test.sh check: only what needs neither root nor devices.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
level=${1:-test}

# All of vet, staticcheck, tests and the programs that tests run are built with one set of tags. With -trimpath the
# build cache works across clones.
export UNIFIEDD_SEED=${UNIFIEDD_SEED:-1}
verbs=$(scripts/tags.sh)
export GOFLAGS="${GOFLAGS:-} -trimpath -tags=invariants${verbs:+,$verbs}"
export UNIFIEDD_PROGRAMS=$PWD/build/programs

# machine lists the state of the machine that tests change and must restore: huge pages,
# block devices, and those network devices, namespaces and mounts that have our names.
machine() {
	huge_pages
	find /sys/block -name 'zram*' | sort
	find /run/netns -name 'unifiedd-*' 2>/dev/null | sort || true
	find /sys/class/net -regex '.*/u[AB][0-9]+x?' | sort
	grep -Hs "$TMPDIR" /sys/block/loop*/loop/backing_file || true
	grep -o " $TMPDIR[^ ]*" /proc/mounts || true
}

# huge_pages lists how many pages of each size are reserved, without surplus pages, and how many the kernel may make.
# Surplus pages were given back after a program was killed, and the kernel frees them when the next program gives
# back its own.
huge_pages() {
	local size
	for size in /sys/kernel/mm/hugepages/*; do
		echo "$size: $(($(<"$size/nr_hugepages") - $(<"$size/surplus_hugepages"))), $(<"$size/nr_overcommit_hugepages")"
	done
}

# others reports whether another run of tests is active: internal/testenv has a ledger
# for each process, which the process keeps locked while it lives.
others() {
	local ledger
	for ledger in /run/unifiedd-testenv/ledger-*; do
		[[ ! -e $ledger ]] || flock -n "$ledger" true || return 0
	done
	return 1
}

# waited_for NAME: sets the variable to the processor time, in seconds, of the children
# that this shell has waited for.
ticks=$(getconf CLK_TCK)
waited_for() {
	local stat
	read -ra stat <"/proc/$BASHPID/stat"
	printf -v "$1" %d $(((stat[15] + stat[16]) / ticks))
}

status=0
pass() { # pass HEADING COMMAND...: run one pass, remember whether it failed
	local since=$SECONDS heading=$1 used now
	shift
	echo "== $heading"
	waited_for used
	"$@" 2>&1 || status=1
	waited_for now
	echo "== $heading: $((SECONDS - since)) s, $((now - used)) s of processor time"
}

as_test() { # as_test NAME COMMAND...: a test that passes if the command does, as events of go test -json
	{
		local since=$SECONDS result=PASS
		echo "=== RUN   $1"
		"${@:2}" 2>&1 || result=FAIL
		printf '%s\n' "--- $result: $1 ($((SECONDS - since)).00s)" "$result"
		[[ $result == PASS ]]
	} | build/test2json -p scripts
}

# given_back is a test. It passes if, within a few seconds, the machine is in the same
# state as before, and no temporary files are left.
given_back() {
	local after left
	for _ in {1..50}; do
		after=$(machine)
		left=$(find "$TMPDIR" -mindepth 1 -maxdepth 1)
		[[ $before != "$after" || -n $left ]] || return 0
		sleep 0.1
	done
	if [[ -z $left ]] && { $shared || others; }; then
		echo "others run tests on this machine as well, and may have changed it"
		return 0
	fi
	diff <(echo "$before") <(echo "$after") | grep '^[<>]' || true
	[[ -z $left ]] || printf 'left behind: %s\n' $left
	return 1
}

build() {
	go build -o build/ ./internal/testsum ./internal/testenv/sweep && go build -o build/ cmd/test2json &&
		go build -o "$UNIFIEDD_PROGRAMS/" ./cmd/... ./selftests/unified-...
}

# The limit is for tests that hang. internal/lint runs vet.
tests=(go test -json -short -vet=off -count=1 -timeout 30m)
isolated=("${tests[@]}" -exec "$PWD/scripts/ns")

# The packages whose concurrency the race detector checks here; a long suite checks all.
raced=(./umem ./xdp ./nvme ./rdma/... ./flows/stream ./flows/fanout ./flows/blocks ./flows/worker ./internal/ring)
# These take huge pages of the machine from others.
taking=(./umem ./internal/testenv ./internal/hugetlb)

everything_else() {
	local all
	mapfile -t all < <(go list ./... | grep -vxF "$(go list "${taking[@]}")")
	"${isolated[@]}" -p "$(nproc)" "${all[@]}"
}

# The modules of their own that need no etcd. Long suites run their tests, but for that of the generated manifest.
modules() {
	local failed=0 module
	for module in packaging internal/bench selftests/browser; do
		go -C "$module" vet ./... || failed=1
	done
	go -C packaging test -count=1 ./kubernetes || failed=1
	return "$failed"
}

check() {
	pass "checks and tests without devices" env UNIFIEDD_DEVICES=no go test -json -short -vet=off -timeout 15m ./...
	return "$status"
}

test() {
	before=$(machine)
	shared=false
	! others || shared=true
	pass "tests and checks" everything_else
	pass "what takes huge pages" "${isolated[@]}" -p 1 "${taking[@]}"
	pass "race detector" "${isolated[@]}" -p 2 -race "${raced[@]}"
	pass "other modules" as_test TestOtherModules modules
	pass "the C library" as_test TestCLibrary make -s -C libunifiedd check
	pass "what is left" as_test TestMachineIsAsItWas given_back
	return "$status"
}

since=$SECONDS
build
echo "== programs: $((SECONDS - since)) s"
# Tests and compilers get their own directory for temporary files. This script reports
# and removes files that they leave there.
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/ut.XXXXXX")
export TMPDIR
chmod 755 "$TMPDIR" # tests give up root
trap '[[ $level == check ]] || build/sweep || true; rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM HUP
if [[ $level == test ]]; then
	[[ $(id -u) == 0 ]] || { echo "make test needs root; make check does without" >&2; exit 1; }
	build/sweep # remove what killed tests of earlier runs left
fi
"$level" | build/testsum -quarantine scripts/quarantine.txt -allow-skip ': (short|lab|devices|emulated|race detector): '
