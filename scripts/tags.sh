#!/usr/bin/env bash
# tags.sh: print the build tags for this machine: verbs, if a C compiler finds the headers
# of libibverbs.
set -euo pipefail
headers='#include <infiniband/verbs.h>'
if [[ $(go env CGO_ENABLED) == 1 ]] && echo "$headers" | $(go env CC) -E - >/dev/null 2>&1; then
	echo verbs
fi
