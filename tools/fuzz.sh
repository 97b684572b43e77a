#!/usr/bin/env bash
# Feeds each parser of foreign input with mutations of its corpus in tests/fuzz/corpus, under AddressSanitizer and
# UBSan. Usage: tools/fuzz.sh SECONDS     (for each parser; a new seed every time, which is printed)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --preset asan >/dev/null
targets=()
for corpus in tests/fuzz/corpus/*; do targets+=("fuzz_$(basename "$corpus")"); done
cmake --build --preset asan --target "${targets[@]}"
cd build/asan/tests/fuzz
for target in "${targets[@]}"; do
  echo "== $target"
  "./$target" "../../../../tests/fuzz/corpus/${target#fuzz_}" "$1" "$RANDOM$RANDOM" ||
    {
      echo "$target failed; keep the input in tests/fuzz/corpus/${target#fuzz_} once it is repaired:" \
        "$PWD/$target.last" >&2
      exit 1
    }
done
