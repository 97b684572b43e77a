"""What tests do without a program that they need."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest


def is_needed(need: str) -> bool:
    """Whether TARANTELLA_NEEDS names it: then nothing may do without it."""
    return need in os.environ.get("TARANTELLA_NEEDS", "").split(",")


def give_up(need: str, said: str) -> NoReturn:
    """Skips; fails where TARANTELLA_NEEDS names `need`."""
    if is_needed(need):
        pytest.fail(said)
    pytest.skip(said)


def mpi_folder(package: str, name: str) -> Path:
    """Returns the folder of an MPI that tools/mpi.sh has installed from a package of PyPI, or gives up."""
    folder = Path(__file__).parents[2] / "build" / "mpi" / package
    if not (folder / ".done").exists():
        give_up("mpi", f"{name} is missing (tools/mpi.sh installs it)")
    return folder
