#!/usr/bin/env bash
# lab-bench.sh LINE: compare with other programs in a guest with a kernel of LINE ("" is the
# default). Its files are gone with the guest: the tests print each report between lines
# that name its file, and here it is put into build/bench again.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/bench
go build -o build/lab ./selftests/lab

build/lab -kernel "${1:-}" -limit 100m -run "${RUN:-^TestAgainst}" |
	awk '/^-----END .*-----$/ { if (to) close(to); to = ""; next }
		/^-----BEGIN [a-z.-]+-----$/ { gsub(/-----(BEGIN )?/, ""); to = "build/bench/" $0; printf "" > to; text = /txt$/; next }
		to { print > to; if (text) print; next }
		{ print; fflush() }'
