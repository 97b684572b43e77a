"""Reading, checking and splitting tf.data pipelines, for any backend.

Its modules import TensorFlow. They are loaded when they are first used: `tf_data.slicer`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import dataset, from_arrays, from_batches, per_rank, seeds, slicer, structure

__all__ = ["dataset", "from_arrays", "from_batches", "per_rank", "seeds", "slicer", "structure"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def is_dataset(data: Any) -> bool:
    """Whether it is a tf.data.Dataset. Loads nothing."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and bool(isinstance(data, tensorflow.data.Dataset))


def is_per_rank(batch: Any) -> bool:
    """Whether it is a `PerRankBatch`. Loads nothing."""
    return _is_of(batch, f"{__name__}.per_rank", "PerRankBatch")


def is_tarantella_dataset(data: Any) -> bool:
    """Whether it is a `tarantella.data.Dataset`. Loads nothing."""
    return _is_of(data, f"{__name__}.dataset", "Dataset")


def _is_of(value: Any, module: str, kind: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, kind))
