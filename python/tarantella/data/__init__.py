"""Splits global batches of the user's data into one micro batch per rank."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tf_data.dataset import Dataset, distribute, explain

__all__ = ["Dataset", "distribute", "explain"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".tf_data.dataset", __name__), name)
