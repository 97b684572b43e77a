"""Names of variables that are the same on every rank."""

from __future__ import annotations

import re
from typing import Any


def name_of(variable: Any) -> str:
    """The variable's path without Keras's numbers, which count the layers made so far in the process."""
    return re.sub(r"_\d+(?=/|$)", "", variable.path if hasattr(variable, "path") else variable.name)


def short_name_of(variable: Any) -> str:
    """The last two parts of the name: Keras leaves the model's out of the paths of a Sequential that it loads."""
    return "/".join(name_of(variable).split("/")[-2:])


def described(variable: Any) -> str:
    """A variable's name, dtype and shape in one line, the same on every rank."""
    # Names of an optimizer's variables have those of layers inside: sequential_1_dense_3_kernel_momentum.
    name = re.sub(r"_\d+(?=_)", "", name_of(variable))
    return f"{name!r} {variable.dtype} {tuple(variable.shape)}"
