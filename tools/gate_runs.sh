#!/usr/bin/env bash
# Runs the Python tests of the gate again and again, and appends a line for each run to tests/gate_runs.txt.
# Usage: tools/gate_runs.sh RUNS [--beside-a-load]     (a load: another process that takes a core)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

load=idle
if [ "${2:-}" = --beside-a-load ]; then
  load=loaded
  while :; do :; done &
  trap 'kill $!' EXIT
fi
mkdir -p build/log
commit=$(git describe --always --dirty) # once: the lines below make the tree dirty
for ((run = 0; run < $1; ++run)); do
  start=$SECONDS
  status=0
  tools/python_tests.sh gate >build/log/gate_run.log 2>&1 || status=$?
  failures=$(grep -cE '^(FAILED|ERROR) ' build/log/gate_run.log)
  if [ "$failures" = 0 ] && [ $status != 0 ]; then failures="exit code $status,"; fi
  printf '%s  %s  %-6s  %4d s  %s failures\n' "$(date -u +%FT%H:%M)" "$commit" $load $((SECONDS - start)) "$failures" |
    tee -a tests/gate_runs.txt
  grep -E '^(FAILED|ERROR) |passed' build/log/gate_run.log
done
