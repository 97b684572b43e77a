# shellcheck shell=bash
# Sourced by what builds for `make test`. With ccache, files that the package, the wheel and the release tests compile
# alike are compiled once. For that, the compiler has the same name in all three.
if command -v ccache >/dev/null; then
  export CXX=${CXX:-g++} CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  export CCACHE_DIR=${CCACHE_DIR:-$PWD/build/ccache} CCACHE_DEPEND=1
  export CCACHE_SLOPPINESS=locale # Python sets LC_CTYPE where there is none, so pip's builds would share nothing
fi
