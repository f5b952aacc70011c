#!/usr/bin/env bash
# tools/packages.sh with stand-ins for dpkg, apt-get and sudo: it installs what is missing and
# nothing else, survives a first failure, and lists what to do where it may not install.
set -euo pipefail

source_dir=${KVGRAFT_SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/bin" "$scratch/tools" "$scratch/state"
cp "$source_dir"/tools/*.sh "$scratch/tools/"

fail() {
  echo "packages_test: $*" >&2
  exit 1
}

stub() { printf '#!/bin/bash\nS=%q\n%s\n' "$scratch/state" "$2" >"$scratch/bin/$1" && chmod +x "$scratch/bin/$1"; }

# A package is installed when a file of its name is in state/; every tool of the list is "there".
# shellcheck disable=SC2016  # the stand-ins expand these
stub dpkg-query '[ -e "$S/${!#}" ] && printf installed || exit 1'
# shellcheck disable=SC2016
stub apt-get '
echo "apt-get $*" >>"$S/../calls"
case " $* " in
  *" install "*)
    [ ! -e "$S/../fail-once" ] || { rm "$S/../fail-once"; exit 100; }
    [ ! -e "$S/../fail-always" ] || exit 100
    for word; do case $word in lib* | nlohmann* | ca-*) touch "$S/$word" ;; esac; done ;;
esac'
stub dpkg 'exit 0'
# shellcheck disable=SC2016
stub id 'cat "$S/../uid"'
# shellcheck disable=SC2016
stub sudo '[ -e "$S/../sudo-works" ] || exit 1; [ "$1" != -n ] || shift; exec "$@"'
stub sleep 'exit 0'

ALL="libcli11-dev nlohmann-json3-dev libfmt-dev libsqlite3-dev libxxhash-dev libssl-dev libeigen3-dev libopenblas-serial-dev libgtest-dev libgmock-dev ca-certificates"

reset() {
  rm -rf "${scratch:?}/state" "$scratch/calls" "$scratch"/fail-* "$scratch/sudo-works"
  mkdir -p "$scratch/state"
  echo 0 >"$scratch/uid"
  local package
  for package in $ALL; do touch "$scratch/state/$package"; done
}

# Runs install_missing as ./dev does; its output goes to $said, its status to $status.
run() {
  status=0
  said=$(PATH=$scratch/bin:$PATH ROOT=$scratch bash -c '
    set -euo pipefail
    . "$ROOT/tools/lib.sh"; . "$ROOT/tools/packages.sh"
    install_missing < <(requirements test)' 2>&1 </dev/null) || status=$?
}

calls() { grep -c "$1" "$scratch/calls" 2>/dev/null || true; }

reset
run
[ "$status" = 0 ] && [ -z "$said" ] && [ ! -e "$scratch/calls" ] || fail "nothing missing, but: $said"

reset
rm "$scratch/state/libxxhash-dev" "$scratch/state/libfmt-dev"
run
[ "$status" = 0 ] || fail "root: status $status: $said"
grep -q 'install -y --no-install-recommends libfmt-dev libxxhash-dev$' "$scratch/calls" ||
  fail "root: installs another set: $(cat "$scratch/calls")"

reset
rm "$scratch/state/libfmt-dev"
touch "$scratch/fail-once"
run
[ "$status" = 0 ] || fail "a first failure is not survived: $said"
[ "$(calls update)" -ge 1 ] || fail "no apt-get update after a failure"

reset
rm "$scratch/state/libfmt-dev"
touch "$scratch/fail-always"
run
[ "$status" = 1 ] || fail "apt fails for good: status $status"
grep -q 'apt-get install libfmt-dev' <<<"$said" || fail "apt fails for good: no list: $said"

reset
rm "$scratch/state/libssl-dev"
echo 1000 >"$scratch/uid"
run
[ "$status" = 1 ] || fail "no root, no sudo: status $status"
grep -q 'apt-get install libssl-dev' <<<"$said" || fail "no root, no sudo: no list: $said"
[ ! -e "$scratch/calls" ] || fail "no root, no sudo: apt-get was called"

reset
rm "$scratch/state/libssl-dev"
echo 1000 >"$scratch/uid"
touch "$scratch/sudo-works"
run
[ "$status" = 0 ] && [ "$(calls 'install.*libssl-dev')" = 1 ] || fail "sudo: status $status: $said"

# Another system: tools and headers are looked for, and the list is printed for each system.
reset
status=0
said=$(PATH=$scratch/bin:$PATH ROOT=$scratch bash -c '
  set -euo pipefail
  . "$ROOT/tools/lib.sh"; . "$ROOT/tools/packages.sh"
  is_debian() { return 1; }
  header_present() { [ "$1" != xxhash.h ]; }
  install_missing < <(requirements build)' 2>&1 </dev/null) || status=$?
[ "$status" = 1 ] || fail "another system: status $status"
for line in 'Fedora: *dnf install xxhash-devel *$' 'Arch: *pacman -S xxhash *$' \
  'macOS: .*brew install xxhash *$' 'apt-get install libxxhash-dev *$'; do
  grep -q "$line" <<<"$said" || fail "another system: no '$line' in: $said"
done
[ ! -e "$scratch/calls" ] || fail "another system: apt-get was called"

echo "packages_test: ok"
