#!/usr/bin/env bash
# test-nvme-guests.sh LINE: run an NVMe over Fabrics target in one guest and the kernel's initiator in
# another, with a kernel of LINE ("" is the default).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -o build/lab ./selftests/lab
go test -vet=off -c -tags lab,verbs -o build/nvme-guests.test ./flows/nvmet

both="build/nvme-guests.test -test.v -test.run '^Test(BetweenGuests|GuestFallsSilent)\$' -test.timeout 15m"
exec build/lab -kernel "${1:-}" -limit 16m -cmd "$both" -cmd2 "$both"
