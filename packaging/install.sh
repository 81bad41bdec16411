#!/usr/bin/env bash
# install.sh: put the built programs, the systemd unit, the example
# configuration, the licenses and the shell completions under DESTDIR/PREFIX.
set -euo pipefail
cd "$(dirname "$0")/.."
root=${DESTDIR:-}
prefix=${PREFIX:-/usr/local}
share=$root$prefix/share

put() { # put MODE FILE TARGET
	install -D -m "$1" "$2" "$3"
	echo "install $3"
}

[[ -x bin/unifiedd ]] || { echo "nothing is built: make build" >&2; exit 1; }
for program in bin/*; do
	put 755 "$program" "$root$prefix/bin/${program##*/}"
done
put 644 packaging/unifiedd.yaml "$share/doc/unifiedd/unifiedd.yaml"
put 644 LICENSE "$share/doc/unifiedd/LICENSE"
put 644 bpf/LICENSE "$share/doc/unifiedd/LICENSE.bpf"

unit=$(mktemp)
trap 'rm -f "$unit"' EXIT
sed "s|@PREFIX@|$prefix|" packaging/unifiedd.service >"$unit"
put 644 "$unit" "$root$prefix/lib/systemd/system/unifiedd.service"

put 644 packaging/unifiedd.sysusers "$root$prefix/lib/sysusers.d/unifiedd.conf"
put 644 packaging/unifiedd.tmpfiles "$root$prefix/lib/tmpfiles.d/unifiedd.conf"

completion() { # completion SHELL TARGET
	bin/unifiedd completion "$1" >"$unit"
	put 644 "$unit" "$share/$2"
}
completion bash bash-completion/completions/unifiedd
completion zsh zsh/site-functions/_unifiedd
completion fish fish/vendor_completions.d/unifiedd.fish
