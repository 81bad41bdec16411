#!/usr/bin/env bash
# long.sh: list the long suites. long.sh SUITE: run one. If it passes on a tree without changes, its line in
# scripts/long-passed.txt says so; commit that file.
# long.sh --release: print when each last passed, and fail if one never did or its paths have changed since.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
verbs=$(scripts/tags.sh)
plain="${GOFLAGS:-} -trimpath -tags=$verbs"
export GOFLAGS="${GOFLAGS:-} -trimpath -tags=invariants${verbs:+,$verbs}"
passed=scripts/long-passed.txt
export UNIFIEDD_REQUIRE=1 UNIFIEDD_SEED=${SEED:-$RANDOM}

# Each line: suite, minutes, paths, what it shows, command.
suites() { grep -v '^#' scripts/long.txt | sed 's/ *| */|/1; s/ *| */|/2; s/ *| */|/3; s/ *| */|/4'; }

build() { go build -o "${UNIFIEDD_PROGRAMS:=$PWD/build/programs}/" ./cmd/... ./selftests/unified-... && export UNIFIEDD_PROGRAMS; }

# build_plain makes the following tests use the build that users get, without the ownership checks.
build_plain() {
	export GOFLAGS=$plain UNIFIEDD_PROGRAMS=$PWD/build/plain-programs
	build
}

here() { go test -count=1 -v -timeout 0 "$@"; }
long() { here -exec "$PWD/scripts/ns" "$@"; }

guest() { # guest LINE PACKAGE...
	go build -o build/ ./internal/testsum
	scripts/lab.sh "$@" | build/testsum
}

# between PACKAGE EXPRESSION PROGRAM...: the same tests in two guests with a wire between them.
between() {
	mkdir -p build/between
	go build -o build/lab ./selftests/lab
	[[ $# -lt 3 ]] || go build -o build/between/ "${@:3}"
	go test -vet=off -c -o build/between.test "$1"
	local both="UNIFIEDD_LAB_PROGRAMS=\$PWD/build/between build/between.test -test.v -test.run '$2' -test.timeout 30m"
	build/lab -kernel "${KERNEL:-}" -limit 31m -cmd "$both" -cmd2 "$both"
}

arm64() {
	go test -count=1 -v -run '^TestWithoutVerbs$' ./internal/lint &&
		GOFLAGS=-trimpath GOARCH=arm64 CGO_ENABLED=0 UNIFIEDD_EMULATED=1 go test -count=1 -short -timeout 0 -exec qemu-aarch64-static \
			./umem/... ./flows/attach/wire ./bpf/filter ./flows/config ./internal/pcapng ./internal/version &&
		make -s -C libunifiedd arm64
}

wrong_use() {
	printf '| command | wrong | first line | status |\n| --- | --- | --- | --- |\n' >build/wrong-use.md
	WRONG_USE_TABLE=$PWD/build/wrong-use.md long -run '^TestWrongUse$' ./cmd/unifiedd ./selftests/wronguse
}

# first is the last commit without a release before it: groups are upgraded from there until there is a tag.
first=f475f9da142b

# upgrade builds the programs of the newest release before this commit, and runs the test of both. A clone without that
# history fails here, and nowhere else.
upgrade() {
	local from tree=$PWD/build/older/tree
	from=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null) || from=$first
	git cat-file -e "$from^{commit}" 2>/dev/null || {
		echo "the older release, $from, is not in this clone: git fetch --unshallow --tags" >&2
		return 1
	}
	rm -rf build/older
	mkdir -p "$tree"
	git archive "$from" | tar -x -C "$tree"
	go -C "$tree" build -buildvcs=false -ldflags "-X main.version=$from" -o ../ ./cmd/unifiedd ./selftests/unified-flow-test
	UNIFIEDD_OLDER=$PWD/build/older long -run '^TestUpgrade$' ./selftests/group
}

# containers runs the test of containers in namespaces of this machine, and in a guest whose kernel has AppArmor.
containers() {
	export GOFLAGS= UNIFIEDD_CONTAINERS=1 UNIFIEDD_IMAGE=$PWD/build/containers/image
	rm -rf build/containers
	go -C packaging run ./packages -root .. -out "$UNIFIEDD_IMAGE" -format image -arch "$(go env GOARCH)" -version 1.2.3 &&
		go -C packaging test -count=1 -v -timeout 0 -exec "$PWD/scripts/ns" -run '^TestContainers$' ./packages &&
		go -C packaging test -c -o ../build/containers/test ./packages &&
		go build -o build/lab ./selftests/lab &&
		build/lab -kernel "${KERNEL:-}" -limit 30m -append 'apparmor=1 security=apparmor' -cmd "
			mount -t securityfs securityfs /sys/kernel/security && cd packaging/packages &&
			UNIFIEDD_APPARMOR=1 UNIFIEDD_CONTAINERS=1 UNIFIEDD_IMAGE=$UNIFIEDD_IMAGE ../../build/containers/test -test.v -test.timeout 0 -test.run '^TestContainers\$'"
}

microbenchmarks() {
	local packages
	mapfile -t packages < <(grep -rl --include='*_test.go' '^func Benchmark' . | grep -v ^./internal/bench/ | xargs -n 1 dirname | sort -u)
	long -run '^$' -bench . -benchtime "${BENCHTIME:-1x}" -p 1 "${packages[@]}"
}

# record SUITE MINUTES: the suite's line in the list of those that passed.
record() {
	local line
	line="$1 $(git rev-parse --short=12 HEAD) $(date -u +%F) $2 min, Linux $(uname -r), seed $UNIFIEDD_SEED"
	{ grep -v "^$1 " "$passed" || true; echo "$line"; } | sort >"$passed.new"
	mv "$passed.new" "$passed"
}

run() { # run SUITE
	local name minutes paths what command since=$SECONDS result=passed
	IFS='|' read -r name minutes paths what command < <(suites | grep "^$1|") || {
		echo "there is no suite $1; make test-long lists them" >&2
		exit 2
	}
	echo "== $name: about $minutes minutes:$what (seed $UNIFIEDD_SEED)"
	build
	(eval "$command") || result=failed
	if [[ $result == passed ]] && git diff --quiet HEAD -- . ":!$passed"; then
		record "$name" "$(((SECONDS - since + 59) / 60))"
	fi
	echo "== $name: $result, $((SECONDS - since)) s"
	[[ $result == passed ]]
}

list() {
	printf '%-13s %7s  %s\n' suite minutes "what it shows"
	suites | while IFS='|' read -r name minutes paths what command; do printf '%-13s %7d %s\n' "$name" "$minutes" "$what"; done
}

# release prints when each suite last passed. It fails if one must run again, and says which.
release() {
	local stale=() line commit changed span=0
	while IFS='|' read -r name minutes paths what command; do
		line=$(grep "^$name " "$passed") || true
		read -r _ commit _ <<<"$line"
		if [[ -z $line ]]; then
			line="$name: has not passed"
		elif ! changed=$(git diff --name-only "$commit" -- $paths ":!$passed" 2>/dev/null | wc -l); then
			line+="; this clone does not have that commit"
		elif ((changed)); then
			line+="; files that have changed in its paths: $changed"
		else
			echo "$line"
			continue
		fi
		echo "$line"
		stale+=("$name")
		span=$((span + minutes))
	done < <(suites)
	((${#stale[@]})) || return 0
	cat >&2 <<-END

		There is no release of this tree: ${#stale[@]} of $(suites | wc -l) long suites must pass on it first, which takes about $span minutes:
		  ${stale[*]}
		Run each with make test-long SUITE=NAME, commit $passed, and run make release again.
	END
	return 1
}

case ${1:-} in
"") list ;;
--release) release ;;
*) run "$1" ;;
esac
