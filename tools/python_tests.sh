#!/usr/bin/env bash
# Runs Python tests: those that compute, two at a time, and beside them those that wait, six at a time.
# Usage: tools/python_tests.sh gate | rest | rest-of-all [OPTION OF PYTEST...]
# gate: what `make test` runs; rest: what `make test-full` adds; rest-of-all: what `make test-all` adds
# TARANTELLA_TIER=full|all runs the equality cases of the gate as those commands do.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"
case $1 in
  gate) readonly EXPRESSION="not full and not extended" TIER=gate ;;
  rest) readonly EXPRESSION="full and not extended" TIER=full ;;
  rest-of-all) readonly EXPRESSION="full or extended" TIER=all ;;
  *) exit 2 ;;
esac
shift
export TARANTELLA_TIER=${TARANTELLA_TIER:-$TIER}

mkdir -p build/log
readonly LOG=build/log/waiting.log
run() { # POOL WORKERS SELECTED OPTION...
  local -r pool=$1 workers=$2 selected=$3
  shift 3
  python -m pytest tests/python --durations=25 -o cache_dir="build/pytest/$pool" -n "$workers" --dist loadscope \
    -m "($EXPRESSION) and $selected" "$@"
}

run waiting 6 waits "$@" >"$LOG" 2>&1 &
computed=0 waited=0
run computing 2 "not waits" "$@" || computed=$?
wait $! || waited=$?
cat "$LOG"
exit $((computed || waited))
