#!/usr/bin/env bash
# fuzz.sh [TIME]: run every fuzz target of the tree for TIME (default 60s), one
# after the other. It stops at the first that finds a failure; go test prints
# where it saved the input.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-60s}

found=0
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "== $package $target for $time"
		# Making interesting inputs smaller may take a minute each by default.
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x "$package"
		found=$((found + 1))
	done
done
echo "$found fuzz targets ran for $time each"
((found > 0))
