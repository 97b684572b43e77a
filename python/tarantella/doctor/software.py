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
from . import BAD, NOTE, Finding

# The libraries that connect the core with an MPI, one for each ABI.
PLUGINS = ("libtarantella_mpi_abi.so", "libtarantella_openmpi.so")
# Seconds that a framework may take to load.
PATIENCE = 180


def check(quick: bool) -> Iterator[Finding]:
    """The findings. Loads each framework in a separate process, unless `quick`."""
    yield Finding("tarantella", f"{__version__} in {os.path.dirname(os.path.dirname(__file__))}")
    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    yield core()
    yield keras()
    packages = {"tensorflow": TENSORFLOW, "jax": ("jax",), "torch": ("torch",)}
    for name, each in packages.items():
        wanted = "'tensorflow>=2.16'" if name == "tensorflow" else name
        yield framework(name, each, f"pip install {wanted}", quick, needed=_backend() == name)


def core(folder: Path = Path(__file__).parents[1]) -> Finding:
    """The compiled part of the package, which is in `folder`."""
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
    found = version("keras")
    if found is None or [int(part) for part in found.split(".")[:2] if part.isdigit()] < [3, 5]:
        text = "not installed" if found is None else f"{found} is too old"
        return Finding("keras", text, BAD, "pip install 'keras>=3.5'")
    if _backend() != "tensorflow":
        cure = "several ranks need KERAS_BACKEND=tensorflow" + " (jax: experimental)" * (_backend() == "jax")
        return Finding("keras", f"{found} with backend {_backend()}", NOTE, cure)
    return Finding("keras", f"{found} with backend tensorflow")


def framework(name: str, packages: tuple[str, ...], cure: str, quick: bool, needed: bool) -> Finding:
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
    """The last line of the error when a process loads the module; None if it succeeds."""
    command = [sys.executable, "-c", f"import {module}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"it takes more than {PATIENCE} seconds"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    return next(reversed(done.stderr.strip().splitlines()), f"code {done.returncode}")
