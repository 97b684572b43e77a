"""Python, the frameworks, and Tarantella itself."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .._installed import TENSORFLOW, version
from .._version import __version__
from .finding import BAD, NOTE, Finding

# What connects the core with an MPI, one for each ABI.
PLUGINS = ("libtarantella_mpi_abi.so", "libtarantella_openmpi.so")
# The seconds that a framework may take to load.
PATIENCE = 180


def check(quick: bool) -> Iterator[Finding]:
    """The findings. Loads the frameworks, each in a process of its own, unless `quick`."""
    yield Finding("tarantella", f"{__version__} in {os.path.dirname(os.path.dirname(__file__))}")
    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    yield core()
    yield keras()
    yield framework(
        "tensorflow", TENSORFLOW, "pip install 'tensorflow>=2.16'", quick, needed=_backend() == "tensorflow"
    )
    for name in ("jax", "torch"):
        yield framework(name, (name,), f"pip install {name}", quick, needed=_backend() == name)


def core(folder: Path = Path(__file__).parents[1]) -> Finding:
    """The built part of the package, which is in `folder`."""
    if importlib.util.find_spec("tarantella._core") is None:
        return Finding("core", "not built: several ranks cannot train", BAD, "pip install .")
    failure = _failure("tarantella._core")
    if failure:
        return Finding("core", f"cannot be loaded: {failure}", BAD, "pip install --force-reinstall --no-deps .")
    missing = [name for name in PLUGINS if not (folder / name).exists()]
    if missing:
        text = f"loads, but without {' and '.join(missing)}: no job on several hosts"
        return Finding("core", text, BAD, "pip install --force-reinstall --no-deps .")
    return Finding("core", "loads, and has its plugins for MPI")


def keras() -> Finding:
    """Keras, of which Tarantella knows 3.5 to 3.16."""
    found = version("keras")
    if found is None:
        return Finding("keras", "not installed", BAD, "pip install 'keras>=3.5'")
    parts = [int(part) for part in found.split(".")[:2] if part.isdigit()]
    if parts < [3, 5]:
        return Finding("keras", f"{found} is too old", BAD, "pip install 'keras>=3.5'")
    if _backend() != "tensorflow":
        return Finding(
            "keras", f"{found} with backend {_backend()}", NOTE, "several ranks need KERAS_BACKEND=tensorflow"
        )
    return Finding("keras", f"{found} with backend tensorflow")


def framework(name: str, packages: tuple[str, ...], cure: str, quick: bool, needed: bool) -> Finding:
    """Whether a framework is installed and loads."""
    found = [f"{package} {number}" for package in packages if (number := version(package))]
    if not found:
        return Finding(name, "not installed", BAD, cure) if needed else Finding(name, "not installed (not needed)")
    text = ", ".join(found)
    if len(found) > 1:
        return Finding(name, text, BAD, "several packages write the same files: uninstall all, then install one")
    failure = None if quick else _failure(name)
    if failure:
        return Finding(
            name, f"{text} cannot be loaded: {failure}", BAD if needed else NOTE, f"{cure} --force-reinstall"
        )
    return Finding(name, text if quick else f"{text}, loads")


def _backend() -> str:
    return os.environ.get("KERAS_BACKEND") or "tensorflow"


def _failure(module: str) -> str | None:
    """The last line of what loading the module says, if that fails. A crash of it is not one of this process."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it takes more than {PATIENCE} seconds"
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines()
    return f"signal {-done.returncode}" if done.returncode < 0 else (said[-1] if said else f"code {done.returncode}")
