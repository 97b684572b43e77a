"""Names of variables that are the same on every rank."""

from __future__ import annotations

import re
from typing import Any


def name_of(variable: Any) -> str:
    """The variable's path without Keras's numbers, which count the layers made so far in the process."""
    return re.sub(r"_\d+(?=/|$)", "", variable.path if hasattr(variable, "path") else variable.name)


def described(variable: Any) -> str:
    """A variable's name, dtype and shape in one line, the same on every rank."""
    return f"{name_of(variable)!r} {variable.dtype} {tuple(variable.shape)}"
