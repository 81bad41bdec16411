#!/usr/bin/env bash
# test-rdma.sh LINE: run unified-rdma-test between two guests with a kernel of LINE ("" is the
# default): every transport, operation and size over the wire between them, its disk, latency
# and bandwidth.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -o build/lab ./selftests/lab
go test -vet=off -c -tags lab,verbs -o build/unified-rdma-test.test ./selftests/unified-rdma-test

both="build/unified-rdma-test.test -test.v -test.run '^TestBetweenGuests\$' -test.timeout 15m"
exec build/lab -kernel "${1:-}" -limit 16m -cmd "$both" -cmd2 "$both"
