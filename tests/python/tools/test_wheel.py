"""The wheels in dist/ (tools/wheel.sh): what they need from the system, and what they load into a process."""

from __future__ import annotations

import re
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

WHEELS = sorted((Path(__file__).resolve().parents[3] / "dist").glob("tarantella-*.whl"))
SYSTEM = re.compile(r"(libc\.so\.6|libm\.so\.6|lib(pthread|dl|rt|gcc_s)\.so\.\d|ld-linux-[\w-]+\.so\.\d)")


@pytest.fixture(scope="module", params=WHEELS or [None], ids=lambda wheel: wheel.stem if wheel else "none")
def wheel(request, tmp_path_factory) -> Path:
    """A folder with what is in a wheel."""
    if request.param is None:
        pytest.skip("dist/ has no wheel: make wheel")
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(request.param).extractall(folder)
    return folder


def binaries(wheel: Path) -> list[Path]:
    found = [path for path in wheel.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    names = {path.name.split(".")[0] for path in found}
    plugins = {"libtarantella_mpi_abi", "libtarantella_openmpi"}
    assert names == {"_core", "libtarantella", "libtarantella_jax", "libtarantella_tensorflow", "tarantella"} | plugins
    return found


def readelf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", "--wide", option, path], capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class Symbol:
    """A name for the dynamic linker, with its version."""

    name: str
    binding: str
    section: str

    @property
    def defined(self) -> bool:
        return self.section != "UND"


def symbols(path: Path) -> list[Symbol]:
    text = readelf("--dyn-syms", path).replace("<OS specific>: 10", "UNIQUE")
    rows = [line.split() for line in text.splitlines()]
    return [Symbol(row[7], row[4], row[6]) for row in rows if len(row) > 7 and row[0][:-1].isdigit()]


def test_it_links_to_the_system_alone(wheel):
    """Neither to TensorFlow nor to MPI: they are found at run time. The C++ library is inside."""
    for path in binaries(wheel):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", path))
        others = [name for name in needed if not SYSTEM.fullmatch(name)]
        assert others in ([], ["libtarantella.so"]), path.name


def test_it_uses_no_c_interface_of_numpy(wheel):
    for path in binaries(wheel):
        assert b"_ARRAY_API" not in path.read_bytes(), path.name


def test_an_old_glibc_serves(wheel):
    """Symbols without a version would be missed only where they are missing."""
    for path in binaries(wheel):
        versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", readelf("--version-info", path))
        assert max((int(major), int(minor)) for major, minor in versions) <= (2, 28), path.name
        own = re.compile(r"MPI_|ompi_" if "mpi" in path.name else r"tnt_|_?Py")  # of an MPI that the core loads first
        unversioned = [s.name for s in symbols(path) if not s.defined and s.binding != "WEAK" and "@" not in s.name]
        assert [name for name in unversioned if not own.match(name)] == [], path.name


def test_the_cpp_library_inside_keeps_to_itself(wheel):
    """Its names could take the place of those that TensorFlow uses. (Headers leave weak ones behind.)"""
    own = re.compile(r"tnt_|tarantella_|PyInit__core$")
    for path in wheel.glob("tarantella/*.so"):
        shown = [s.name for s in symbols(path) if s.defined and s.binding not in ("WEAK", "UNIQUE")]
        assert [name for name in shown if not own.match(name)] == [], path.name


def test_its_name_says_what_it_is(wheel):
    (core,) = wheel.glob("tarantella/_core.*.so")
    (info,) = wheel.glob("*.dist-info/WHEEL")
    (tag,) = re.findall(r"^Tag: (.*)$", info.read_text(), flags=re.MULTILINE)
    python, abi, platform = tag.split("-")
    assert platform.startswith("manylinux_2_28_")
    assert (python, abi) == ("cp312", "abi3") if core.name == "_core.abi3.so" else abi == python
    assert core.name == "_core.abi3.so" or f"cpython-{python[2:]}-" in core.name


def test_the_machine_that_built_it_left_no_trace_in_what_it_asks_for(wheel):
    (info,) = wheel.glob("*.dist-info/METADATA")
    assert re.findall(r'^Requires-Dist: (.*); extra == "tensorflow"$', info.read_text(), flags=re.MULTILINE) == [
        "tensorflow>=2.16"
    ]
