#!/usr/bin/env bash
# lab-bench.sh LINE: compare with other programs in a guest with a kernel of LINE ("" is the
# default), and between two guests. Files in a guest do not outlive it. So the tests print each
# report between lines that name its file, and this script writes it to build/bench.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/bench
go build -o build/lab ./selftests/lab

# keep writes reports to files, and prints their tables and all other output. Lines of a pair of guests begin
# with the guest's number.
keep() {
	awk '{ line = $0; sub(/^[12]\| /, "", line) }
		line ~ /^-----END .*-----$/ { if (to) close(to); to = ""; next }
		line ~ /^-----BEGIN [a-z.-]+-----$/ { gsub(/-----(BEGIN )?/, "", line); to = "build/bench/" line; printf "" > to; text = to ~ /txt$/; next }
		to { print line > to; if (text) print line; next }
		{ print; fflush() }'
}

# pair compares between two guests. The same test runs in both.
pair() {
	go build -o build/lab-bench/ ./selftests/unified-rdma-test
	go test -vet=off -c -tags lab -o build/lab-bench/roce.test ./internal/bench/roce
	local both="UNIFIEDD_RDMA_TEST=build/lab-bench/unified-rdma-test build/lab-bench/roce.test -test.v -test.run '^TestBetweenGuests\$' -test.timeout 95m"
	build/lab -kernel "$1" -limit 100m -cmd "$both" -cmd2 "$both" | keep
}

# stolen prints for how many hundredths of a second the host of this machine withheld processors:
# proc_stat(5). The guests do not see it.
stolen() { awk '/^cpu / { print $9 }' /proc/stat; }
before=$(stolen)
trap 'echo "The host of this machine had its processors for $((($(stolen) - before) / 100)) s of $SECONDS s times $(nproc) meanwhile."' EXIT

if [[ TestBetweenGuests =~ ${RUN:-^TestBetween} ]]; then
	pair "${1:-}"
	[[ -z ${RUN:-} ]] || exit 0
fi
build/lab -kernel "${1:-}" -limit 100m -run "${RUN:-^TestAgainst}" | keep
