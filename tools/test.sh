#!/usr/bin/env bash
# The gate: lint, the C++ tests, and the Python tests that an ordinary change can break.
# Usage: tools/test.sh [--full | --all]
# --full adds the rest that CI runs: sanitizers, fuzzing, clang-tidy, the wheel under other frameworks, every endpoint,
# the examples, and the equality cases with real starts. --all adds every case on one to four ranks, and the tests
# marked "extended". Runs every step, and fails if any of them fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"
source tools/ccache.sh

tier=${1:---gate}
case $tier in
  --gate) limit=900 ;; # seconds
  --full | --all) limit=2700 ;;
  *) sed -n 's/^# Usage/Usage/p' "$0" >&2; exit 2 ;;
esac
failed=()
times=()
mkdir -p build/log
step() {
  local name=$1 start=$SECONDS log="build/log/step ${1//\//-}.log" status
  shift
  printf '\n=== %s\n' "$name"
  { "$@"; } > >(tee -i "$log") 2>&1 # in braces, $! is that of tee for programs, too
  status=$?
  timeout 10 tail -s 0.1 --pid=$! -f /dev/null # until tee has written all; a process that was left may hold its input
  if [ $status = 0 ]; then
    printf '=== %s: ok (%d s)\n' "$name" $((SECONDS - start))
  else
    printf '=== %s: FAILED (%d s)\n' "$name" $((SECONDS - start))
    failed+=("$name" "$(what_failed "$log")")
  fi
  times+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
}

# The lines of pytest and ctest that name what failed, else those of compilers, else the last ones. CI may keep only the
# end of its output, so these come last.
what_failed() {
  local -r tests='^(FAILED|ERROR) [^ ]|^[[:space:]]+[0-9]+ - .*\([A-Z][^(]*\)$'
  { grep -aE "$tests" "$1" | grep -v '(Skipped)$' || grep -a 'error: ' "$1" || tail -n 8 "$1"; } |
    head -n 12 | cut -c 1-220
}

# Shows the output of a build only if it fails.
build() {
  local log=build/log/build-$1.log
  { cmake --preset "$1" && cmake --build --preset "$1"; } >"$log" 2>&1 || { cat "$log"; return 1; }
}

# Builds on what the steps that run meanwhile leave of the cores. The steps that need the builds show their failures.
build_ahead() {
  chrt --idle --pid 0 "$BASHPID"
  for preset; do build "$preset"; done
}

cpp() {
  local -a run=()
  # ThreadSanitizer does not run on kernels with much address space randomization, so switch it off.
  if [ "$1" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then run=(setarch "$(uname -m)" -R); fi
  build "$1" && "${run[@]}" ctest --preset "$1" --no-tests=error --timeout 300 --parallel 3
}

export TARANTELLA_TIER=${tier#--}
step "lint" tools/lint.sh
step "C++ tests, release" cpp release
if [ "$tier" = --gate ]; then
  step "Python tests of the gate" tools/python_tests.sh gate
else
  set -m # a process group for the builds, which ends with this script
  build_ahead full asan tsan >/dev/null 2>&1 &
  builds=$!
  set +m
  trap 'kill -- "-$builds" 2>/dev/null' EXIT
  step "Python tests of the gate" tools/python_tests.sh gate
  if [ "$tier" = --full ]; then
    step "Python tests, the rest" tools/python_tests.sh rest
    rows=(oldest jax) # .venv has the newest, and the nightly only warns
  else
    step "Python tests, the rest" tools/python_tests.sh rest-of-all
    step "known bugs of the core" tests/explorer/mutations.sh
    rows=(oldest middle newest nightly jax)
  fi
  step "compatibility" tools/compatibility.sh "${rows[@]}"
  wait "$builds"
  step "clang-tidy" tools/lint.sh --tidy
  trap - EXIT
  for preset in full asan tsan; do step "C++ tests, $preset" cpp "$preset"; done
fi

printf '\n=== where the time went\n'
printf '%s\n' "${times[@]}"
printf '%5d s  in all; the limit is %d s%s\n' $SECONDS $limit "$([ "$tier" = --all ] && echo ' without --all')"
if [ "$tier" != --all ] && [ $SECONDS -gt $limit ]; then echo "LATE: above the limit"; fi
if [ ${#failed[@]} -gt 0 ]; then
  printf '\n=== what failed\n'
  printf '%s\n' "${failed[@]}"
  exit 1
fi
