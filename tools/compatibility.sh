#!/usr/bin/env bash
# Builds a wheel and trains with it under TensorFlow and Keras, from the oldest supported versions to the nightly.
# Usage: tools/compatibility.sh [ROW...]     ROW: see below; default: all. A failure of the nightly is only a warning.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1  # trust this machine's certificates; the variable has a new and an old name

readonly FOLDER="$PWD/build/compatibility"
readonly UV="$PWD/build/wheel/tools/bin/uv"
readonly EQUAL="tests/python/parallel/test_equals_one_process.py"
readonly README="tests/python/single/test_readme.py"
readonly SNAPSHOT="tests/python/parallel/test_snapshot.py::test_a_killed_training_goes_on_at_its_step[pipeline-kills1]"

# The wheel without CUDA, if there is one for this machine.
TENSORFLOW=tensorflow
[ "$(uname -m)" != x86_64 ] || TENSORFLOW=tensorflow-cpu
# Packages without a version are the newest ones.
declare -A ROWS=(
  [oldest]="$TENSORFLOW==2.16.2 keras==3.5.0 numpy==1.26.*"
  [middle]="$TENSORFLOW==2.18.* keras==3.10.*"
  [newest]="$TENSORFLOW keras"
  [nightly]="$TENSORFLOW keras-nightly"
  [jax]="jax keras"
  [torch]="torch keras"
)
# The rows without TensorFlow, named after Keras's backend, run this instead of the cases. PyPI's torch for Linux comes
# with CUDA (more than 500 MB), so CI runs the row `jax` only.
readonly WITHOUT_TENSORFLOW="tests/python/single/test_without_tensorflow.py"
# Cases of tests/python/parallel/cases/ that depend most on classes and private names of Keras and TensorFlow.
# `make test-full` runs all cases under the newest versions.
CASES=(
  training-{sgd_uneven_batch,sgd_shuffled,adam_float32,validation_data,class_weight,clipped_accumulated_averaged}
  training-{built_by_the_data,own_train_step,eager,fit_twice_and_recompiled,metrics_of_many_kinds}
  losses-{masked_and_summed,added_sum} metrics-own_metrics_that_do_not_add_up
  sparse-embedding_adam modes-{compiled_by_xla,compiled_by_xla_several_steps_per_execution}
  normalization-synchronized inputs-{generator,py_dataset} inputs_on_batch-train_on_batches
  inputs_local-brought_unevenly
  callbacks-files_of_every_epoch models-saved_loaded_and_gone_on
)
readonly RANKS=2

# Hard links into uv's cache keep the environments small and quick to recreate. Wheels only: users may lack a compiler.
make_environment() {
  local venv="$FOLDER/$1" overrides="$FOLDER/$1.overrides"
  shift
  # TensorFlow requires keras, which would overwrite keras-nightly.
  case "$*" in *keras-nightly*) echo "keras; sys_platform == 'none'" ;; esac >"$overrides"
  "$UV" venv --quiet --allow-existing --python python3 "$venv" &&
    "$UV" pip install --quiet --no-build --python "$venv" --overrides "$overrides" --upgrade \
      --reinstall-package tarantella "tarantella @ file://$wheel" pytest pytest-timeout "$@"
}

# run_row NAME: fails if the environment cannot be made (for example without a network) or a case is not equal. It skips
# the row if this Python has no TensorFlow or Keras of these versions.
run_row() {
  local start=$SECONDS log="$FOLDER/$1.log"
  printf '\n[compatibility] %s: %s\n' "$1" "${ROWS[$1]}"
  # shellcheck disable=SC2086 # one word a requirement
  if ! make_environment "$1" ${ROWS[$1]} 2>"$log"; then
    cat "$log" >&2
    grep -E 'no wheels with a matching|does not satisfy Python' "$log" | grep -qvi 'tarantella' || return 1
    printf '[compatibility] %s: SKIPPED: there is none of these for %s\n' "$1" "$(python3 --version)"
    return 0
  fi
  printf '[compatibility] %s: environment ready (%d s): %s\n' "$1" $((SECONDS - start)) \
    "$("$UV" pip list --python "$FOLDER/$1" 2>/dev/null |
      awk '/^(tensorflow|tensorflow-cpu|keras|keras-nightly|numpy|jax|torch) / {print $1, $2}' | xargs)"
  local -a tests=()
  mapfile -t tests < <(printf "$EQUAL::test_case[%s-$RANKS]\n" "${CASES[@]}" && printf '%s\n' "$README" "$SNAPSHOT")
  local backend=""
  case $1 in jax | torch) backend=$1 tests=("$WITHOUT_TENSORFLOW") ;; esac
  # All cases in one process, because starting TensorFlow takes longer than a case.
  # uv compiles no Python files: the first process does, unless it is told not to write.
  env -u TARANTELLA_EXECUTABLE -u PYTHONPATH -u PYTHONDONTWRITEBYTECODE TARANTELLA_CASES_TOGETHER=1 \
    TARANTELLA_TIER=all TARANTELLA_WITHOUT_TENSORFLOW="$backend" \
    "$FOLDER/$1/bin/python" -m pytest -v --disable-warnings -p no:cacheprovider "${tests[@]}" || return 1
  printf '[compatibility] %s: ok (%d s)\n' "$1" $((SECONDS - start))
}

mkdir -p "$FOLDER"
tools/wheel.sh || exit 1
# shellcheck disable=SC2012 # our own names
wheel=$PWD/$(ls -t dist/*.whl | head -n 1)
failed=()
[ $# -gt 0 ] || set -- oldest middle newest nightly jax torch
for row; do
  if run_row "$row"; then
    :
  elif [ "$row" = nightly ]; then
    printf '[compatibility] WARNING: the nightly fails; %s\n' \
      'its Keras may be refused, or need new names in keras/private.py' >&2
  else
    failed+=("$row")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  printf '[compatibility] FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
