"""What tests do without a program that they need."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def give_up(need: str, said: str) -> NoReturn:
    """Skips; fails where TARANTELLA_NEEDS names `need`."""
    if need in os.environ.get("TARANTELLA_NEEDS", "").split(","):
        pytest.fail(said)
    pytest.skip(said)
