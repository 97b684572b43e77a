"""Which packages are installed, found without loading them."""

from __future__ import annotations

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
