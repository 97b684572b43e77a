#!/usr/bin/env bash
# Runs lint, the C++ tests (release and each sanitizer), the wheel under old and new frameworks, and the Python tests.
# Runs all of them, and fails if any of them fails.
# Usage: tools/test.sh [--all]     (--all adds every equality case on one to four ranks, the tests marked "extended",
# and the other rows of the compatibility job)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"
source tools/ccache.sh

readonly BUDGET=2400 LATE=4500 # seconds
failed=()
unsteady=()
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

# Builds on what the step that runs meanwhile leaves of the cores. The steps that need the builds show their failures.
build_ahead() {
  chrt --idle --pid 0 "$BASHPID"
  for preset; do build "$preset"; done
}

# Never fails: the steps that follow build again what failed.
rest_of_the_builds() {
  wait "$builds" || true
  trap - EXIT
}

cpp() {
  local -a run=()
  # ThreadSanitizer does not run on kernels with much address space randomization, so switch it off.
  if [ "$1" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then run=(setarch "$(uname -m)" -R); fi
  build "$1" && "${run[@]}" ctest --preset "$1" --no-tests=error --timeout 300 --parallel 3 --repeat after-timeout:2
}

# Tests of launchers run other people's (ssh's, MPI's, Slurm's) against the clock. A few of them that fail run once
# more, alone, and are named at the end if they pass then. Any other failure is final.
python_tests() {
  local -r cache=.pytest_cache/v/cache/lastfailed of_launchers='^  "tests/python/(hosts|launch|slurm)/.*": true,?$'
  python -m pytest tests/python "${selection[@]}" -n 2 --dist loadfile --durations=40 --cache-clear && return
  local -a found
  mapfile -t found < <(grep '": true' "$cache")
  if [ ${#found[@]} = 0 ] || [ ${#found[@]} -gt 3 ] || printf '%s\n' "${found[@]}" | grep -qvE "$of_launchers"; then
    return 1
  fi
  printf '\n=== once more, alone\n'
  python -m pytest tests/python "${selection[@]}" --last-failed --last-failed-no-failures none || return
  unsteady+=("${found[@]}")
}

rows=(oldest jax) # .venv has the newest, and the nightly only warns
selection=(-m "not extended")
if [ "${1:-}" = --all ]; then
  rows=(oldest middle newest nightly jax)
  selection=()
  export TARANTELLA_ALL_RANKS=1
fi

step "lint" tools/lint.sh
step "C++ tests, release" cpp release
if [ "${1:-}" = --all ]; then step "known bugs of the core" tests/explorer/mutations.sh; fi
step "compatibility" tools/compatibility.sh "${rows[@]}"
set -m # a process group for the builds, which ends with this script
build_ahead asan tsan >/dev/null 2>&1 &
builds=$!
set +m
trap 'kill -- "-$builds" 2>/dev/null' EXIT
# Two tests run at a time, because a job of two ranks leaves a core idle now and then.
step "Python tests" python_tests
step "rest of the builds" rest_of_the_builds
for preset in asan tsan; do step "C++ tests, $preset" cpp "$preset"; done

printf '\n=== where the time went (CONTRIBUTING has the budget)\n'
printf '%s\n' "${times[@]}"
printf '%5d s  in all, of %d s; the limit of CI is 5400 s\n' $SECONDS "$BUDGET"

if [ $SECONDS -gt $LATE ]; then echo "LATE: this took $((SECONDS / 60)) minutes, and CI ends after 90"; fi
if [ ${#unsteady[@]} -gt 0 ]; then
  printf '\n=== what passed only when it ran once more: a defect to mend\n'
  printf '%s\n' "${unsteady[@]}"
fi
if [ ${#failed[@]} -gt 0 ]; then
  printf '\n=== what failed\n'
  printf '%s\n' "${failed[@]}"
  exit 1
fi
