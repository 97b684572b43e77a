#!/usr/bin/env bash
# Runs lint, the C++ tests (release and each sanitizer), the wheel under old and new frameworks, and the Python tests.
# Runs all of them, and fails if any of them fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"

failed=()
times=()
step() {
  local name=$1 start=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  if "$@"; then
    printf '=== %s: ok (%d s)\n' "$name" $((SECONDS - start))
  else
    printf '=== %s: FAILED (%d s)\n' "$name" $((SECONDS - start))
    failed+=("$name")
  fi
  times+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
}

# Shows the output of a build only if it fails.
build() {
  local log=build/log/build-$1.log
  mkdir -p build/log
  { cmake --preset "$1" && cmake --build --preset "$1"; } >"$log" 2>&1 || { cat "$log"; return 1; }
}

cpp() {
  local -a run=()
  # ThreadSanitizer does not run on kernels with much address space randomization, so switch it off.
  if [ "$1" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then run=(setarch "$(uname -m)" -R); fi
  build "$1" && "${run[@]}" ctest --preset "$1" --no-tests=error --timeout 300 --parallel 3
}

step "lint" tools/lint.sh
for preset in release asan ubsan tsan; do step "C++ tests, $preset" cpp "$preset"; done
step "compatibility" tools/compatibility.sh oldest newest nightly

step "Python tests" python -m pytest tests/python --durations=15

printf '\n=== where the time went\n'
printf '%s\n' "${times[@]}" "$(printf '%5d s  in all; the limit of CI is 5400 s' $SECONDS)"

if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
