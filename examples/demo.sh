#!/usr/bin/env bash
# The story of kvgraft in one minute: read a document once, answer from it in other processes, and
# prove that nothing changed. Run by ./dev demo; needs kvgraft in PATH.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
model=${KVGRAFT_DEMO_MODEL:-smollm2-135m}
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT
export KVGRAFT_STORE=$store/store

# field NAME: that field of the JSON object on the last line of standard input.
field() {
  python3 -c '
import json, sys
value = json.loads(sys.stdin.read().strip().splitlines()[-1])[sys.argv[1]]
print(str(value).lower() if isinstance(value, bool) else round(value) if isinstance(value, float) else value)' "$1"
}

# What the program reports on the way is for terminals; elsewhere it is shown only after a failure.
if [ ! -t 2 ]; then
  exec 3>&2 2>"$store/messages"
  # shellcheck disable=SC2154  # set by the trap itself
  trap 'status=$?; [ $status = 0 ] || cat "$store/messages" >&3; rm -rf "$store"; exit $status' EXIT
fi

step() { printf '\n%s\n' "$*"; }

ask() {
  local said
  said=$(kvgraft ask -m "$model" --graft manual -n 40 --json "$1")
  printf '   Q: %s\n   A: %s\n' "$1" "$(field answer <<<"$said")"
  printf '   %s tokens reused, %s computed; state restored in %s ms; first token after %s ms; tier: %s\n' \
    "$(field tokens_reused <<<"$said")" "$(field tokens_computed <<<"$said")" \
    "$(field restore_ms <<<"$said")" "$(field first_token_ms <<<"$said")" "$(field tier <<<"$said")"
}

step "1. Capture: the model reads the manual of a tide clock, once."
captured=$(kvgraft capture -m "$model" --name manual --json "$here/demo/document.md")
id=$(field id <<<"$captured")
printf '   %s tokens read in %s ms; kept as %s... (%s MB, stored in %s ms)\n' \
  "$(field tokens <<<"$captured")" "$(field prefill_ms <<<"$captured")" "${id:0:12}" \
  "$(($(field bytes <<<"$captured") / 1000000))" "$(field store_ms <<<"$captured")"

step "2. Ask: other processes answer from the stored state; the manual is not read again."
ask "What is the diameter of the dial?"
ask "Which days does the workshop answer letters?"

step "3. Verify: read the manual again from its text and compare the state, byte for byte."
verified=$(kvgraft verify manual --recompute -m "$model" --json)
printf '   checksums ok: %s (%s pages); recomputed state identical: %s\n' \
  "$(field ok <<<"$verified")" "$(field pages <<<"$verified")" \
  "$(field recomputed_identical <<<"$verified")"

step "4. Prove: random texts, splits and restores against one cold run; every bit of the logits."
proved=$(kvgraft prove -m "$model" --samples 3 --seed 1 --json)
printf '   %s of %s samples identical\n' "$(field identical <<<"$proved")" "$(field samples <<<"$proved")"

step "Try it: build/bin/kvgraft capture -m $model --name notes YOUR-FILE.md"
printf '        build/bin/kvgraft ask -m %s --graft notes "YOUR QUESTION"\n' "$model"
