#!/usr/bin/env bash
# test-nvme-kills.sh LINE KILLS: in a guest with a kernel of LINE ("" is the default), kill the daemon while
# the kernel's initiator uses it, and cut the wire between them, KILLS times each.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -o build/lab ./selftests/lab

# A kill and a cut take 20 seconds, and three times that under other load.
export UNIFIEDD_KILLS=$2
exec build/lab -kernel "$1" -limit "$((5 + UNIFIEDD_KILLS))m" -run '^TestHostsReturn$' ./cmd/unifiedd
