#!/usr/bin/env bash
# need-go.sh: stop with a clear message when Go is missing or older than go.mod
# asks for.
set -euo pipefail
cd "$(dirname "$0")/.."

want=$(awk '$1 == "go" { print $2 }' go.mod)
have=$(cd / && go env GOVERSION 2>/dev/null || true)
have=${have#go}
if [[ -z $have ]]; then
	echo "Go $want or newer is needed and there is no go command in PATH." >&2
elif [[ $(printf '%s\n' "$want" "$have" | sort -V | head -n 1) == "$want" ]]; then
	exit 0
elif [[ $(go env GOTOOLCHAIN) != local && $(printf '%s\n' 1.21 "$have" | sort -V | head -n 1) == 1.21 ]]; then
	exit 0 # this go downloads the one it needs by itself
else
	echo "Go $want or newer is needed; the go command in PATH is $have." >&2
fi
echo "Install it from https://go.dev/dl/ (unpack to /usr/local, put /usr/local/go/bin in PATH) and run make again." >&2
exit 1
