#!/usr/bin/env bash
# Refuses what must not be in the tree: paths of one machine, and host names of package registries
# (clients are configured by their users; scripts name packages, never servers).
#   tools/check_words.sh [ROOT]
set -euo pipefail

root=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
cd "$root"

# Written in pieces, so that this file does not find itself.
slash=/
words="(^|[^A-Za-z0-9_.}])${slash}work${slash}|${slash}home${slash}[a-z]+${slash}|${slash}root${slash}\.[a-z]"
hosts='(pypi|pythonhosted|debian|ubuntu|npmjs|crates|conda|anaconda)\.(org|io|com|net)'

list_files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard
  else
    find . -type f -not -path './build*' -not -path './.deps/*'
  fi
}

found=$(list_files | grep -v '^tools/check_words.sh$' | tr '\n' '\0' |
  xargs -0 grep -InE "$words|$hosts" 2>/dev/null || true)
if [ -n "$found" ]; then
  printf '%s\n' "$found"
  echo "check_words: the lines above name this machine or a registry host" >&2
  exit 1
fi
echo "check_words: clean"
