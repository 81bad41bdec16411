#!/usr/bin/env bash
# bench.sh: compare with other programs. Tables are printed, and are in build/bench with JSON. RUN and CASES choose
# by expressions, FORM is usual or long. With KERNEL it compares in lab guests instead, whose files do not outlive them.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/bench build/bench-programs
tags=$(scripts/tags.sh)
export GOFLAGS="${GOFLAGS:-} -trimpath -tags=$tags"
go build -o build/bench-programs/ ./cmd/... ./selftests/unified-...
export UNIFIEDD_BENCH=${FORM:-usual} UNIFIEDD_BENCH_CASES=${CASES:-}

if [[ -z ${KERNEL:-} ]]; then
	export UNIFIEDD_PROGRAMS=$PWD/build/bench-programs
	exec go -C internal/bench test -count=1 -v -p 1 -timeout 240m -run "^TestAgainst.*${RUN:-}" ./...
fi

# in_guests EXPRESSION: run tests in a guest, or with two in both of a pair.
in_guests() {
	local command="UNIFIEDD_RDMA_TEST=build/bench-programs/unified-rdma-test build/bench-programs/roce.test -test.v -test.run '$1' -test.timeout 95m"
	build/lab -kernel "$KERNEL" -limit 100m -cmd "$command" -cmd2 "${2:+$command}"
}

# stolen prints for how many hundredths of a second the host of this machine withheld processors:
# proc_stat(5). The guests do not see it.
stolen() { awk '/^cpu / { print $9 }' /proc/stat; }
before=$(stolen)
trap 'echo "The host of this machine had its processors for $((($(stolen) - before) / 100)) s of $SECONDS s times $(nproc) meanwhile."' EXIT

go build -o build/lab ./selftests/lab
go -C internal/bench test -vet=off -c -o "$PWD/build/bench-programs/roce.test" ./roce
[[ ! TestBetweenGuests =~ ${RUN:-} ]] || in_guests '^TestBetweenGuests$' two
[[ ! TestAgainstPerftest =~ ${RUN:-} ]] || in_guests '^TestAgainstPerftest$'
