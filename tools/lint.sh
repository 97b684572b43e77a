#!/usr/bin/env bash
# Runs all formatters, linters, the type checker and the check of include directions. Fails if any of them fails.
# Usage: tools/lint.sh [--fix | --tidy]     (--fix applies the formatters instead, --tidy runs clang-tidy, for minutes)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"

failed=()
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then printf '[lint] %s: ok (%d s)\n' "$name" $((SECONDS - start)); else failed+=("$name"); fi
}

PYTHON=(python tools examples tests/python tests/preloaded)
[ -d bench ] && PYTHON+=(bench)
mkdir -p build/log
mapfile -t cpp < <(find include src bindings tests bench -name '*.h' -o -name '*.cpp' | LC_ALL=C sort)

if [ "${1:-}" = --fix ]; then
  ruff check --fix "${PYTHON[@]}"
  ruff format "${PYTHON[@]}"
  clang-format -i "${cpp[@]}"
  exit
fi

# clang-tidy reads the compile commands of the release preset. Its output is shown only if it fails.
tidy() {
  local log=build/log/tidy.log
  { cmake --preset release && find src -name '*.cpp' -print0 | LC_ALL=C sort -z |
    xargs -0 -n 2 -P "$(nproc)" clang-tidy --quiet -p build/release --extra-arg=-Wno-unknown-warning-option \
      --extra-arg=-Wno-unknown-pragmas; } \
    >"$log" 2>&1 || { cat "$log"; return 1; }
}

if [ "${1:-}" = --tidy ]; then
  tidy
  exit
fi

mutations() {
  local patch
  for patch in tests/explorer/mutations/*.patch; do
    patch -p1 --fuzz=0 --dry-run --silent --force <"$patch" || return 1
  done
}

check "include directions" python tools/check_includes.py
check "map of the package" python tools/check_map.py
check "line lengths" python tools/check_lines.py
check "sleeps in tests" python tools/check_sleeps.py
check "words" python tools/check_words.py
check "ruff" ruff check --quiet "${PYTHON[@]}"
check "ruff format" ruff format --quiet --diff "${PYTHON[@]}"
check "mypy" mypy --no-error-summary
check "clang-format" clang-format --dry-run -Werror "${cpp[@]}"
check "mutations apply" mutations

if [ ${#failed[@]} -gt 0 ]; then
  printf '[lint] FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
