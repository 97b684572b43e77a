#!/usr/bin/env bash
# Builds one wheel and trains with it under TensorFlow and Keras from the oldest that it supports to the nightly build.
# Usage: tools/compatibility.sh [ROW...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FOLDER="$PWD/build/compatibility"
readonly UV="$PWD/build/wheel/tools/bin/uv"
readonly EQUAL="tests/python/parallel/test_equals_one_process.py"

# What is not pinned is the newest of the day on which a row's environment was made.
declare -A ROWS=(
  [oldest]="tensorflow-cpu==2.16.2 keras==3.5.0 numpy==1.26.*"
  [middle]="tensorflow-cpu==2.18.* keras==3.10.*"
  [newest]="tensorflow-cpu keras"
  [nightly]="tensorflow-cpu keras-nightly"
)
# Of tests/python/parallel/cases/training.py: what leans on Keras's own classes most. All cases run in `make test`.
CASES=(
  sgd_uneven_batch sgd_shuffled adam_float32 validation_data class_weight sample_weight dataset_uneven
  clipped_accumulated_averaged loss_scaled summed_loss structures metrics_of_many_kinds built_by_the_data
  own_train_step eager several_steps_per_execution fit_twice_and_recompiled early_stopping
)
readonly RANKS=2

# Hard links into uv's cache keep the environments small, and quick to make again.
make_environment() {
  local venv="$FOLDER/$1" overrides="$FOLDER/$1.overrides"
  shift
  # TensorFlow asks for keras, which would write into the folder of keras-nightly.
  case "$*" in *keras-nightly*) echo "keras; sys_platform == 'none'" ;; esac >"$overrides"
  "$UV" venv --quiet --allow-existing --python python3 "$venv" &&
    "$UV" pip install --quiet --python "$venv" --overrides "$overrides" --reinstall-package tarantella \
      "tarantella[test] @ file://$wheel" "$@" &&
    "$UV" pip list --python "$venv" 2>/dev/null | awk '/^(tensorflow-cpu|keras|keras-nightly|numpy) / {print $1, $2}'
}

run_row() {
  local start=$SECONDS
  printf '\n[compatibility] %s\n' "$1"
  # shellcheck disable=SC2086 # one word a requirement
  make_environment "$1" ${ROWS[$1]} || return 1
  env -u TARANTELLA_EXECUTABLE -u PYTHONPATH "$FOLDER/$1/bin/python" -m pytest --quiet --disable-warnings -p no:cacheprovider \
    tests/python/single $(printf "$EQUAL::test_case[training-%s-$RANKS] " "${CASES[@]}") || return 1
  printf '[compatibility] %s: ok (%d s)\n' "$1" $((SECONDS - start))
}

mkdir -p "$FOLDER"
tools/wheel.sh || exit 1
# shellcheck disable=SC2012 # our own names
wheel=$PWD/$(ls -t dist/*.whl | head -n 1)
failed=()
[ $# -gt 0 ] || set -- oldest middle newest nightly
for row; do run_row "$row" || failed+=("$row"); done
if [ ${#failed[@]} -gt 0 ]; then
  printf '[compatibility] FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
