#!/usr/bin/env bash
# test.sh: run every test and check, in several passes, with the time of each pass and one
# summary. The checks of the tree (format, vet, staticcheck, generated files,
# layering, cross build) are also tests, in internal/lint. One more test checks that the
# machine is in the same state as before. A short pass skips tests, which give the reason,
# and the summary counts them.
#
# test.sh quick: for use after each change. It leaves out the lab guest, the race
# detector, arm64, the checks of the tree, and each test's long form.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
tags=$(packaging/tags.sh)
# With -trimpath the build cache works across clones.
export GOFLAGS="${GOFLAGS:-} -trimpath -tags=$tags"
go build -o build/ ./internal/testsum ./internal/testenv/sweep
go build -o build/ cmd/test2json

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

# huge_pages lists how many pages of each size are reserved, without surplus pages. Those
# were given back after a program was killed, and the kernel frees them when the next
# program gives back its own.
huge_pages() {
	local size
	for size in /sys/kernel/mm/hugepages/*; do
		echo "$size: $(($(<"$size/nr_hugepages") - $(<"$size/surplus_hugepages")))"
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

# Tests and compilers get their own directory for temporary files. This script reports
# and removes files that they leave there.
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/ut.XXXXXX")
export TMPDIR
chmod 755 "$TMPDIR" # tests give up root
trap 'build/sweep || true; rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM HUP

build/sweep # remove what killed tests of earlier runs left
shared=false
others && shared=true
before=$(machine)

status=0
pass() { # pass HEADING COMMAND...: run one pass, remember whether it failed
	local since=$SECONDS heading=$1 then now
	shift
	echo "== $heading"
	waited_for then
	"$@" 2>&1 || status=1
	waited_for now
	echo "== $heading: $((SECONDS - since)) s, $((now - then)) s of processor time"
}

# waited_for NAME: sets the variable to the processor time, in seconds, of the children
# that this shell has waited for.
ticks=$(getconf CLK_TCK)
waited_for() {
	local stat
	read -ra stat <"/proc/$BASHPID/stat"
	printf -v "$1" %d $(((stat[15] + stat[16]) / ticks))
}

# side_by_side LANE...: run these functions at the same time. The output of the first
# appears at once, that of the others when all have ended.
side_by_side() {
	local lane failed=0 running=()
	for lane in "${@:2}"; do
		"$lane" >"$TMPDIR/said-$lane" 2>&1 &
		running+=($!)
	done
	"$1" || failed=1
	for lane in "${running[@]}"; do
		wait "$lane" || failed=1
	done
	for lane in "${@:2}"; do
		cat "$TMPDIR/said-$lane"
		rm "$TMPDIR/said-$lane"
	done
	return "$failed"
}

# packages KIND: list the packages of a kind. The tests of "pure" packages use no devices;
# their imports show it (internal/testenv makes devices). The tests of "library" packages
# use devices through the library. Those of "program" packages run programs or measure.
# Programs reserve huge pages, and would take those that a concurrent test has reserved.
# The tests of umem also take more pages than there are, and those of internal/testenv
# count them.
packages() {
	go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
		awk -v kind="$1" '{
			is = "pure"
			if (/ [^ ]*\/internal\/testenv( |$)/) is = "library"
			if (is == "library" && $1 ~ /\/(cmd|selftests|internal\/bench)\/|\/umem$/) is = "program"
			if ($1 ~ /\/internal\/testenv$/) is = "program"
			if ($1 ~ /\/internal\/lint$/) is = "pure"
			if (is == kind) print $1
		}'
}

# given_back is a test. It passes if, within a few seconds, the machine is in the same
# state as before, and no temporary files are left.
given_back() {
	local name=TestMachineIsAsItWas after left
	echo "=== RUN   $name"
	for _ in {1..50}; do
		after=$(machine)
		left=$(find "$TMPDIR" -mindepth 1 -maxdepth 1)
		[[ $before != "$after" || -n $left ]] || break
		sleep 0.1
	done
	if [[ $before == "$after" && -z $left ]]; then
		printf '%s\n' "--- PASS: $name (0.00s)" PASS
		return
	fi
	if [[ -z $left ]] && { $shared || others; }; then
		printf '%s\n' "others run tests on this machine as well" "--- SKIP: $name (0.00s)" PASS
		return
	fi
	diff <(echo "$before") <(echo "$after") | grep '^[<>]' || true
	[[ -z $left ]] || printf 'left behind: %s\n' $left
	printf '%s\n' "--- FAIL: $name (0.00s)" FAIL
	return 1
}

as_events() { # as_events COMMAND...: the output of a test, as events of its own
	"$@" | build/test2json -p packaging
}

as_test() { # as_test NAME COMMAND...: a test that passes if the command does
	local since=$SECONDS result=PASS
	echo "=== RUN   $1"
	"${@:2}" 2>&1 || result=FAIL
	printf '%s\n' "--- $result: $1 ($((SECONDS - since)).00s)" "$result"
	[[ $result == PASS ]]
}

# internal/lint runs vet. The limit is for tests that hang. It is long enough for a cold
# cache and the load of the other lanes.
tests=(go test -json -vet=off -count=1 -timeout 25m)
race=(-short -race -tags "invariants${tags:+,$tags}")
raced=(./nvme ./rdma/roce/transport ./internal/pcapng ./cmd/unifiedd)
raced_alone=(./umem ./internal/testenv)
mapfile -t pure < <(packages pure)
mapfile -t library < <(packages library | grep -vE '/(flows|nvme|bpf)$')
mapfile -t program < <(packages program)

# The packages of programs that start their own lab guests, and those that count the
# machine's huge pages and so must run alone.
guests='/selftests/(interop|powercut)$'
counting='/internal/testenv$|/umem$'
# The tests that need more memory than there is beside other tests and lab guests.
much_memory='^TestLargeRegion$'
mapfile -t own_guests < <(printf '%s\n' "${program[@]}" | grep -E "$guests")
mapfile -t alone < <(printf '%s\n' "${program[@]}" | grep -E "$counting")
mapfile -t programs < <(printf '%s\n' "${program[@]}" | grep -vE "$guests|$counting")

# steps_aside makes this lane run only while no other needs the processor. Tests with
# time limits run in a lane without it, and so are not affected.
steps_aside() { chrt --idle --pid 0 "$BASHPID"; }

# The tests and programs that the timed lane runs are compiled before the lanes start.
# Otherwise tests with time limits would compete with compilers of normal priority. The other
# lanes also compile later, but they step aside. go list with -export compiles the tests and does not link them, which
# go test does again each time: that takes half of the time.
compile() {
	go list -test -export ./... >/dev/null && go build -o /dev/null ./cmd/... ./selftests/unified-... &&
		go -C selftests/peers/etcd-peer build -o /dev/null .
}

# Device tests wait for the kernel most of the time, so several of them fit two processors.
disks() { "${tests[@]}" -p 1 "$@" ./nvme; }
cards() { "${tests[@]}" -p 2 "$@" "${library[@]}"; } # the longest lane
flows_to_f() { "${tests[@]}" -run '^Test[A-F]' "$@" ./flows; }
flows_from_g() { "${tests[@]}" -skip "^Test[A-FQ-Z]|$much_memory" "$@" ./flows; }
flows_from_q() { "${tests[@]}" -run '^Test[Q-Z]' "$@" ./flows; }
devices() { side_by_side disks cards flows_to_f flows_from_g flows_from_q; }

# timed runs the tests with time limits, one pass after the other. The guests are emulated. Beside other tests with
# limits they get so little time that their kernels report stalls, and that their own tests come to their limits.
timed() {
	pass "device tests, five side by side" devices
	pass "tests of programs, one by one" "${tests[@]}" -p 1 "${programs[@]}"
	pass "tests in guests" side_by_side in_lab_guest in_own_guests
	return "$status"
}

# A guest takes one processor.
in_lab_guest() {
	pass "tests for the lab guest, Linux 7, short" env SHORT=1 packaging/lab.sh 7
	return "$status"
}
in_own_guests() {
	pass "programs with lab guests of their own" "${tests[@]}" -p 1 "${own_guests[@]}"
	return "$status"
}

compile_raced() { go list -test -export "${race[@]:1}" "$@" >/dev/null; }

race_cards() {
	local failed=0
	"${tests[@]}" "${race[@]}" ./xdp || failed=1
	flows_from_g "${race[@]}" || failed=1
	return "$failed"
}
race_flows_to_f() { flows_to_f "${race[@]}"; }
race_flows_from_q() { flows_from_q "${race[@]}"; }
races() { side_by_side race_cards race_flows_to_f race_flows_from_q; }

computing() {
	local benchmarks module
	steps_aside
	pass "checks, and tests without devices" "${tests[@]}" "${pure[@]}"
	pass "arm64 under qemu, short" env GOARCH=arm64 CGO_ENABLED=0 UNIFIEDD_EMULATED=1 "${tests[@]}" -short \
		-exec qemu-aarch64-static ./umem/... ./flows/attach/wire ./bpf/filter ./flows/config ./internal/pcapng ./internal/version
	pass "the C library" as_events as_test TestCLibrary make -s -C libunifiedd check
	pass "the C library for arm64 under qemu" as_events as_test TestCLibraryARM64 make -s -C libunifiedd arm64
	pass "programs for the kernel" "${tests[@]}" ./bpf
	while IFS= read -r module; do
		pass "module $(dirname "$module")" go -C "$(dirname "$module")" test -json -count=1 -p 1 -timeout 25m ./...
	done < <(find selftests packaging -name go.mod)
	pass "compile for the race detector" as_events as_test TestCompilesForRaceDetector compile_raced ./flows ./xdp "${raced[@]}" "${raced_alone[@]}"
	pass "ownership checks and race detector, short: disks and programs" "${tests[@]}" -p 1 "${race[@]}" "${raced[@]}"
	pass "ownership checks and race detector, short: cards and flows" races
	# A separate pass, since go test with -bench runs packages one by one.
	mapfile -t benchmarks < <(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)
	pass "benchmarks, once" "${tests[@]}" -run '^$' -bench . -benchtime 1x "${benchmarks[@]}"
	return "$status"
}

whole() {
	pass "compile" as_events as_test TestCompiles compile
	pass "all that fits side by side" side_by_side timed computing
	pass "what counts huge pages" "${tests[@]}" -p 1 "${alone[@]}"
	pass "what needs much memory" "${tests[@]}" -run "$much_memory" ./flows
	pass "ownership checks and race detector, short: pages" "${tests[@]}" -p 1 "${race[@]}" "${raced_alone[@]}"
	pass "what is left" as_events given_back
	return "$status"
}

quick_devices() {
	tests+=(-short)
	devices
}
quick_computing() {
	steps_aside
	mapfile -t some < <(printf '%s\n' "${pure[@]}" | grep -vE '/internal/(lint|testsum)$')
	"${tests[@]}" -short "${some[@]}"
}
quick() {
	pass "compile" compile
	pass "tests with and without devices, short" side_by_side quick_devices quick_computing
	pass "what is left" as_events given_back
	return "$status"
}

# A machine may have other load, so a few failed tests run again, and the summary reports
# that. Their pass still has a failed status. build/again then shows that the failed tests
# ran again and passed.
export TAGS=$tags
rm -f build/again
"${1:-whole}" | build/testsum -again packaging/again.sh -allow-skip '\bshort\b' -allow-skip '\bemulated\b' || {
	results=("${PIPESTATUS[@]}")
	((results[1] == 0)) && [[ -e build/again ]]
}
