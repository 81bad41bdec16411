#!/usr/bin/env bash
# test.sh: every test and check, in several passes, with the time each took and one
# summary. The checks of the tree (format, vet, staticcheck, generated files,
# layering, cross build) are tests too, in internal/lint. Packages whose tests use
# the machine's devices run one after the other, since they measure and share it;
# the others run side by side.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -o build/testsum ./internal/testsum

status=0
pass() { # pass HEADING COMMAND...: run one pass, remember whether it failed
	local since=$SECONDS heading=$1
	shift
	echo "== $heading"
	"$@" 2>&1 || status=1
	echo "== $heading: $((SECONDS - since)) s"
}

# packages KIND: those whose tests use devices (internal/testenv makes them), or
# the others.
packages() {
	go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
		awk -v kind="$1" '{
			device = / [^ ]*\/internal\/testenv( |$)/ || $1 ~ /\/internal\/testenv$/
			if ($1 ~ /\/internal\/lint$/) device = 0
			if (device == (kind == "device")) print $1
		}'
}

passes() {
	local test=(go test -json -count=1 -timeout 9m) list
	mapfile -t list < <(packages pure)
	pass "checks, and tests without devices" "${test[@]}" -bench . -benchtime 1x "${list[@]}"

	mapfile -t list < <(packages device)
	pass "device tests; benchmarks once" "${test[@]}" -p 1 -bench . -benchtime 1x "${list[@]}"

	# -p 1 holds for the compiler too, so what can be compiled before is. Left out is
	# what takes long and shows no other races than the rest.
	list=(./umem ./xdp ./nvme ./flows ./internal/pcapng ./internal/testenv ./cmd/unifiedd)
	pass "compile for the race detector" go build -race -tags invariants "${list[@]}"
	pass "ownership checks and race detector, short" "${test[@]}" -p 1 -short -race -tags invariants \
		-skip '^Test(From|LedgerInOverload|Port|OpenGiantPages|DiskFull|TimesAndStatistics|SameAsTcpdump|LiveFile|Devices|Demo|Hostile)' "${list[@]}"

	# Left out: what asks for pages and nodes, which the emulator does not have, and
	# TestHostile, which bounds a time.
	list=(./umem/... ./bpf/filter ./flows/config ./internal/pcapng ./internal/version)
	pass "arm64 under qemu, short" env GOARCH=arm64 CGO_ENABLED=0 "${test[@]}" -short \
		-skip '^Test(Open|Placement|Control|Hostile$)' -exec qemu-aarch64-static "${list[@]}"

	local module
	while IFS= read -r module; do
		pass "module $(dirname "$module")" go -C "$(dirname "$module")" test -json -count=1 -p 1 -timeout 9m ./...
	done < <(find selftests -name go.mod)
	return "$status"
}

# What the short passes leave out has run in those before.
passes | build/testsum -allow-skip '\bshort\b'
