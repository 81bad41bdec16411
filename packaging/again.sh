#!/usr/bin/env bash
# again.sh PACKAGE TEST: run one test twice more, and where test.sh has its package built for
# the race detector once more in that build; or twice in the lab guest, where the package's
# name has the line of the guest's kernel behind an @. TAGS, which are in GOFLAGS, too, are
# test.sh's. build/again is there once a test has passed.
set -euo pipefail
cd "$(dirname "$0")/.."
package=$1 test=$2
module=$(go list -m)
if [[ $package == *@* ]]; then
	line=${package#*@} package=${package%@*}
	for _ in 1 2; do
		build/lab -kernel "$line" -run "^$test\$" -short -limit 9m -json ".${package#"$module"}"
	done
	touch build/again
	exit
fi
[[ $package == "$module"* ]] || exit 1 # another module, or what is no package
tests=(go test -json -vet=off -timeout 9m -run "^$test\$")
"${tests[@]}" -count=2 "$package"
case ${package#"$module"} in
/flows | /xdp | /nvme | /umem | /internal/testenv | /internal/pcapng | /cmd/unifiedd)
	"${tests[@]}" -count=1 -short -race -tags "invariants${TAGS:+,$TAGS}" "$package"
	;;
esac
touch build/again
