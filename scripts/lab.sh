#!/usr/bin/env bash
# lab.sh LINE [PACKAGE...]: run the lab's tests in a guest with a kernel of a line ("" is the default), and
# print the events of go test -json. SHORT=1 selects the short form, RUN the tests, LIMIT the time of a package's
# tests. If CMD is set, run that command instead, and CMD2 in a second guest.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -o build/lab ./selftests/lab

guest=(build/lab -kernel "$1" -nodes "${NODES:-1}")
if [[ -n ${CMD:-} ]]; then
	exec "${guest[@]}" -cmd "$CMD" -cmd2 "${CMD2:-}"
fi
exec "${guest[@]}" -run "${RUN:-}" ${SHORT:+-short} -limit "${LIMIT:-40m}" -json "${@:2}"
