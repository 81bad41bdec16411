#!/usr/bin/env bash
# again.sh PACKAGE TEST: run one test twice more. If test.sh builds its package for the race
# detector, run it once more in that build. If the package's name ends in @ and a line of
# kernels, run the test twice in the lab guest with that kernel instead. test.sh sets TAGS,
# which are also in GOFLAGS. build/again exists after a test has passed.
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
[[ $package == "$module"* ]] || exit 1 # another module, or not a package
tests=(go test -json -vet=off -timeout 9m -run "^$test\$")
"${tests[@]}" -count=2 "$package"
case ${package#"$module"} in
/flows | /xdp | /nvme | /rdma/roce/transport | /umem | /internal/testenv | /internal/pcapng | /cmd/unifiedd)
	"${tests[@]}" -count=1 -short -race -tags "invariants${TAGS:+,$TAGS}" "$package"
	;;
esac
touch build/again
