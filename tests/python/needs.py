"""What tests do without a program that they need."""

from __future__ import annotations

import os
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
