# shellcheck shell=bash
# Sourced by what builds for `make test`. With ccache, files that the package, the wheel, the tests and other clones on
# this machine compile alike are compiled once. For that, the compiler has the same name in all, and paths in a clone
# do not count.
if command -v ccache >/dev/null; then
  export CXX=${CXX:-g++} CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
  # locale: Python sets LC_CTYPE where there is none, so pip's builds would share nothing
  export CCACHE_SLOPPINESS=locale,pch_defines,time_macros
fi
