"""What Tarantella adds to Keras: the model wrapper and the hooks behind it."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "callbacks":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(".callbacks", __name__)
