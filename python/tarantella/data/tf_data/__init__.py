"""Reading, checking and splitting tf.data pipelines, for any backend; one TensorFlow seed for all ranks.

Its modules import TensorFlow. They are loaded when they are first used: `tf_data.slicer`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ..._job.environment import is_verified, layout
from ..._job.import_hooks import after_import
from ..._job.log import logger

if TYPE_CHECKING:
    from . import dataset, from_arrays, from_batches, per_rank, slicer, structure

__all__ = ["dataset", "from_arrays", "from_batches", "per_rank", "slicer", "structure"]


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


# Without one, an unseeded shuffle differs from rank to rank.
DEFAULT_SEED = 42


def global_seed() -> int | None:
    from tensorflow.python.eager import context

    seed: int | None = context.global_seed()
    return seed


def set_global_seed(seed: int) -> None:
    sys.modules["tensorflow"].random.set_seed(seed)


def _set_default(_: Any = None) -> None:
    """Gives TensorFlow a fixed global seed if the user has set none."""
    if global_seed() is None:
        set_global_seed(DEFAULT_SEED)
        logger.info(
            "shuffles without a seed use the default seed %d on every rank; tf.random.set_seed or "
            "keras.utils.set_random_seed choose another",
            DEFAULT_SEED,
        )


def arrange_default_seed() -> None:
    """Sets the default seed, now or as soon as TensorFlow gets imported: on several ranks, and what they verify."""
    if layout().size == 1 and not is_verified():
        return
    if hasattr(sys.modules.get("tensorflow"), "random"):
        _set_default()
    elif "tensorflow" not in sys.modules:  # there, something stands for it, or its import is blocked or has begun
        after_import("tensorflow", _set_default)
