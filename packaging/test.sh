#!/usr/bin/env bash
# test.sh: every test once, in several passes, with one summary. The checks of
# the tree (format, vet, staticcheck, generated files, layering, cross build)
# are tests too, in internal/lint. Packages run one after the other, since
# device tests measure and share the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -o build/testsum ./internal/testsum

status=0
pass() { # pass HEADING COMMAND...: run one pass, remember whether it failed
	echo "== $1"
	shift
	"$@" 2>&1 || status=1
}

# existing PATTERN...: those of the package patterns that match anything
existing() { go list "$@" 2>/dev/null || true; }

passes() {
	local test=(go test -json -count=1 -p 1 -timeout 9m)
	pass "all packages; benchmarks once" "${test[@]}" -bench . -benchtime 1x ./...

	local checked
	mapfile -t checked < <(existing ./umem/... ./bpf/... ./xdp/... ./nvme/... ./flows/... ./internal/pcapng/...)
	pass "ownership checks and race detector, short" "${test[@]}" -short -race -tags invariants "${checked[@]}"

	local pure
	mapfile -t pure < <(existing ./internal/pcapng ./flows/config ./bpf/filter)
	# TestHostile bounds the time hostile configurations take: nothing to judge under emulation.
	pass "arm64 under qemu" env GOARCH=arm64 CGO_ENABLED=0 "${test[@]}" -short -skip '^TestHostile$' \
		-exec qemu-aarch64-static "${pure[@]}"

	local module
	while IFS= read -r module; do
		pass "module $(dirname "$module")" go -C "$(dirname "$module")" test -json -count=1 -p 1 -timeout 9m ./...
	done < <(find selftests -name go.mod)
	return "$status"
}

# What the short pass leaves out has run in the first one.
passes | build/testsum -allow-skip '\bshort\b'
