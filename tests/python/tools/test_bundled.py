"""tools/bundled.py: what a build puts into a wheel, and licences that are missing there."""

from pathlib import Path

import bundled
import pytest

ROOT = Path(__file__).resolve().parents[3]
INSIDE = {
    "/env/site-packages/nanobind/ext/robin_map/include": "robin_map",
    "/env/site-packages/nanobind/src/nb_type.cpp": "nanobind",
    "/usr/lib/gcc/x86_64-linux-gnu/12/libstdc++.a": "gcc_runtime",
    "/usr/lib/gcc/x86_64-linux-gnu/12/crtbeginS.o": "gcc_runtime",
    "/work/build/wheel/glibc-2.28/libc_nonshared.a": "glibc",
}


def test_what_is_inside_has_a_licence_in_the_repository():
    licences = {path.stem for path in (ROOT / "licenses").glob("*.txt")}
    assert bundled.mistakes({*INSIDE, "/usr/include/python3.11"}, licences) == []


@pytest.mark.parametrize("path", ["/usr/lib/x86_64-linux-gnu/libhwloc.a", "/usr/include/eigen3", "/opt/x/fmt.cpp"])
def test_what_nobody_knows_is_named(path):
    (line,) = bundled.mistakes({*INSIDE, path}, set(INSIDE.values()))
    assert line.startswith(f"{path} is in the wheel: add its licence to licenses/")


def test_a_missing_licence_and_one_too_many_are_named():
    licences = set(INSIDE.values())
    assert bundled.mistakes(set(INSIDE), licences - {"glibc"}) == [
        "the wheel has glibc in it, but not licenses/glibc.txt"
    ]
    assert bundled.mistakes(set(INSIDE), licences | {"zlib"}) == ["licenses/zlib.txt is of nothing in the wheel"]


def test_compile_commands_and_maps_are_read():
    command = {"file": "/opt/x/fmt.cpp", "command": "c++ -I/work/src -isystem '/opt/a b' -O3 -c /opt/x/fmt.cpp"}
    assert bundled.compiled([command]) == {"/opt/x/fmt.cpp", "/work/src", "/opt/a b"}
    text = "LOAD src/main.o\nLOAD /usr/lib/libz.a\nLOAD /usr/lib/libm.so.6\nLOAD /usr/lib/crt1.o\n"
    assert bundled.linked(text) == {"/usr/lib/libz.a", "/usr/lib/crt1.o"}
