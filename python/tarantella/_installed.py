"""What is installed: packages, found without loading them, and the launcher."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from importlib import metadata

# The packages of which one brings TensorFlow.
TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "intel-tensorflow", "tensorflow-rocm")


def version(*packages: str) -> str | None:
    """The version of the first of these packages of PyPI that is installed."""
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return None


def launcher() -> str:
    """The path of the program `tarantella`. Raises RuntimeError if there is none."""
    folders = [os.path.dirname(sys.executable or ""), sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]
    found = shutil.which("tarantella", path=os.pathsep.join(filter(None, folders)))
    if found is None:
        raise RuntimeError("there is no program tarantella beside this Python or in PATH; install the package again")
    return found
