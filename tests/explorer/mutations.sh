#!/usr/bin/env bash
# Builds the core with each known bug of mutations/ in turn. Fails if the explorer misses one within 25 seconds.
# Usage: tests/explorer/mutations.sh [SEED]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cmake --preset release >/dev/null && cmake --build --preset release --target explorer_mutations >/dev/null || exit 1
missed=()
for patch in tests/explorer/mutations/*.patch; do
  name=$(basename "$patch" .patch)
  said=$("build/release/tests/explorer/mutation_$name" --seconds 25 ${1:+--seed "$1"})
  [ $? -eq 1 ] || missed+=("$name")
  printf '%s: %s\n' "$name" "$(tail -n 1 <<<"$said")"
done
[ ${#missed[@]} -eq 0 ] || { printf 'NOT FOUND: %s\n' "${missed[@]}" >&2; exit 1; }
