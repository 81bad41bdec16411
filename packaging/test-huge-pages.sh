#!/usr/bin/env bash
# test-huge-pages.sh: run the tests that use huge pages. At the same time, another program
# takes free huge pages, gives them back, and changes the kernel's counter of them.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
tags=$(packaging/tags.sh)
export GOFLAGS="${GOFLAGS:-} -trimpath -tags=$tags"
go build -o build/ ./internal/testenv/stir
packages=$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
	awk '/ [^ ]*\/internal\/testenv( |$)/ && $1 !~ /\/(internal\/lint|internal\/bench\/.*|selftests\/(interop|powercut))$/ { print $1 }')
coproc build/stir
stir=$COPROC_PID
status=0
# One package after the other: each reserves huge pages for itself.
go test -p 1 -vet=off -count=1 -timeout 25m $packages || status=1
kill -0 "$stir" # it ran all the time
exec {COPROC[1]}>&-
wait "$stir"
exit "$status"
