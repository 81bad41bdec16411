#!/usr/bin/env bash
# lab.sh LINE...: for each line of kernels ("" is the default) run the lab's tests in a
# guest with such a kernel, and print the events of go test -json. SHORT=1 selects the short
# form. If CMD is set, run that command instead, and CMD2 in a second guest.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -o build/lab ./selftests/lab

status=0 limit=40m # of a package's tests; the longest short one takes 6 minutes
[[ -z ${SHORT:-} ]] || limit=15m
for line in "$@"; do
	if [[ -n ${CMD:-} ]]; then
		build/lab -kernel "$line" -nodes "${NODES:-1}" -cmd "$CMD" -cmd2 "${CMD2:-}" || status=$?
	else
		build/lab -kernel "$line" -nodes "${NODES:-1}" -run "${RUN:-}" ${SHORT:+-short} -limit "$limit" -json || status=$?
	fi
done
exit "$status"
