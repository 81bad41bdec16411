#!/usr/bin/env bash
# test-group-guests.sh LINE: run a group of daemons that keep one log in two guests, with a kernel of
# LINE ("" is the default).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/group-guests
go build -o build/lab ./selftests/lab
go build -tags verbs -o build/group-guests ./cmd/unifiedd ./selftests/unified-flow-test
go test -vet=off -c -tags lab,verbs -o build/group-guests.test ./selftests/group

both="UNIFIEDD_LAB_PROGRAMS=\$PWD/build/group-guests build/group-guests.test -test.v -test.run '^TestBetweenGuests\$' -test.timeout 30m"
exec build/lab -kernel "${1:-}" -limit 31m -cmd "$both" -cmd2 "$both"
