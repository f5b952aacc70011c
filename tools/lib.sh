# shellcheck shell=bash
# Shared by ./dev and tools/*.sh: messages, logs, retries. Sourced, never run.

ROOT=${ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
LOGS=$ROOT/build/logs
# shellcheck disable=SC2034  # used by the files that source this one
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/kvgraft

say() { printf 'kvgraft: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

on_terminal() { [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; }

sha256_stdin() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1
}

cores() { nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2; }

# retry N COMMAND...: up to N times, with growing pauses. For network steps.
retry() {
  local tries=$1 n=1
  shift
  until "$@"; do
    [ "$n" -lt "$tries" ] || return 1
    sleep $((n * 3))
    n=$((n + 1))
  done
}

# Reports how far a build is, from ninja's "[12/140]" lines in a log, until it is killed.
watch_build() {
  local label=$1 log=$2 at last='' beat=0
  # The parent may be killed; and a sleep must not keep somebody's pipe open.
  while sleep 2 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    beat=$((beat + 2))
    at=$(tail -c 20000 "$log" 2>/dev/null | grep -aoE '^ *\[[0-9]+/[0-9]+\]' | tail -n 1 |
      tr -d '[] ' || true)
    if [ -z "$at" ] || [ "$at" = "$last" ]; then continue; fi
    if on_terminal; then
      printf '\rkvgraft: %s: step %s of %s \033[K' "$label" "${at%/*}" "${at#*/}" >&2
    elif [ $beat -ge 30 ]; then
      say "$label: step ${at%/*} of ${at#*/}"
      beat=0
    fi
    last=$at
  done
}

# logged LABEL LOGNAME COMMAND...: runs the command with its output in build/logs/LOGNAME.log and
# shows progress; on failure prints the log's end and returns the command's status. The command
# runs in the foreground, so that an interrupt reaches it and all that it started.
logged() {
  local label=$1 log=$LOGS/$2.log watcher status=0
  shift 2
  mkdir -p "$LOGS"
  : >"$log"
  watch_build "$label" "$log" &
  watcher=$!
  # shellcheck disable=SC2064  # expand now: the watcher must not outlive an interrupted script
  trap "kill $watcher 2>/dev/null || true" EXIT
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  trap - EXIT
  if on_terminal; then printf '\r\033[K' >&2; fi
  if [ $status -ne 0 ]; then
    say "$label failed (status $status); the end of $log:"
    grep -aE 'error|FAILED|Error' "$log" | head -n 20 >&2 || true
    tail -n 15 "$log" >&2
  fi
  return $status
}

# One command at a time in a checkout: a second one waits. The lock goes with the process.
lock_checkout() {
  command -v flock >/dev/null || return 0
  mkdir -p "$ROOT/.deps"
  exec 8>"$ROOT/.deps/lock"
  flock -n 8 && return
  say "another ./dev is at work in this folder, waiting for it"
  flock 8
}

unlock_checkout() { if command -v flock >/dev/null; then exec 8>&-; fi; }
