"""Build-time metadata of the package: the requirements of the extra `tensorflow`, and an error if a build cannot work.

scikit-build-core calls this while it computes the metadata on the user's machine ([[tool.dynamic-metadata]] in
pyproject.toml). Requirements have no "or", so the extra is empty if any TensorFlow is installed. A wheel for other
machines (tools/wheel.sh, which sets TARANTELLA_PORTABLE) always requires the full package.
"""

from __future__ import annotations

import os
import platform
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

MINIMUM = ">=2.16"
# All distributions that contain the module `tensorflow`.
DISTRIBUTIONS = frozenset(
    {
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-gpu",
        "tensorflow-intel",
        "tensorflow-macos",
        "tensorflow-aarch64",
        "tensorflow-cpu-aws",
        "tensorflow-rocm",
        "intel-tensorflow",
        "tf-nightly",
        "tf-nightly-cpu",
        "tf-nightly-rocm",
    }
)
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def site_folders() -> list[str]:
    """Returns the package folders of the interpreter that the build is for.

    pip builds in isolation and hides these folders from sys.path, but it runs the same interpreter, so sysconfig still
    names them. The system's folders and the user's are included, unless a virtual environment hides them.
    """
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    in_venv = sys.prefix != sys.base_prefix
    if not in_venv or _venv_sees_system():
        folders += site.getsitepackages([sys.base_prefix])
        folders.append(site.getusersitepackages())
    return list(dict.fromkeys(folders))


def _venv_sees_system() -> bool:
    try:
        text = (Path(sys.prefix) / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(
        key.strip() == "include-system-site-packages" and value.strip().lower() == "true"
        for key, _, value in (line.partition("=") for line in text.splitlines())
    )


def installed_tensorflow(folders: Iterable[str]) -> str | None:
    """Returns the name of the TensorFlow distribution that is installed in one of `folders`, or None."""
    for distribution in distributions(path=list(folders)):
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-").replace(".", "-")
        if name in DISTRIBUTIONS:
            return name
    return None


def tensorflow_requirements(
    folders: Iterable[str], machine: str = platform.machine(), driver: Path = NVIDIA_DRIVER
) -> list[str]:
    """Returns the requirements of the extra `tensorflow`: none, the small package without CUDA, or the full one."""
    if installed_tensorflow(folders):
        return []
    if driver.exists() or machine != "x86_64":
        return [f"tensorflow{MINIMUM}"]
    return [f"tensorflow-cpu{MINIMUM}"]


def what_is_missing() -> list[str]:
    """Returns the missing build requirements, one line each."""
    missing = []
    compilers = [os.environ["CXX"].split()[0]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    if "CMAKE_CXX_COMPILER" not in os.environ.get("CMAKE_ARGS", "") and not any(map(shutil.which, compilers)):
        named = f"CXX names {compilers[0]}, which is not there" if len(compilers) == 1 else "none in PATH"
        missing.append(f"a C++20 compiler ({named}; Debian and Ubuntu: apt-get install g++; or set CXX)")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        package = f"python{sys.version_info.major}-dev"
        missing.append(f"the headers of Python ({header}; Debian and Ubuntu: apt-get install {package})")
    return missing


_building_wheel = True


def build_state(state: str) -> None:
    """Called by scikit-build-core before it asks for metadata. A source distribution needs no compiler."""
    global _building_wheel
    _building_wheel = state != "sdist"


def dynamic_metadata(_settings: Mapping[str, Any], _project: Mapping[str, Any]) -> dict[str, Any]:
    missing = what_is_missing() if _building_wheel else []
    if missing:
        # SystemExit, because pip wraps any other exception in thirty lines of traceback.
        raise SystemExit("\nTarantella cannot be built here. Missing: " + "; and ".join(missing) + ".\n")
    portable = os.environ.get("TARANTELLA_PORTABLE")
    wanted = [f"tensorflow{MINIMUM}"] if portable else tensorflow_requirements(site_folders())
    return {"optional-dependencies": {"tensorflow": wanted}}


def dynamic_wheel(_settings: Mapping[str, Any]) -> dict[str, bool]:
    """Allows the extras of a wheel to differ from those of the source distribution."""
    return {"optional-dependencies": True}
