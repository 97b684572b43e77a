"""One TensorFlow seed for all ranks: without it an unseeded shuffle differs from rank to rank.

Importing this module does not import TensorFlow.
"""

from __future__ import annotations

import sys
from typing import Any

from ..._job.environment import is_verified, layout
from ..._job.import_hooks import after_import
from ..._job.log import logger

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


def arrange() -> None:
    """Sets the default seed, now or as soon as TensorFlow gets imported: on several ranks, and what they verify."""
    if layout().size == 1 and not is_verified():
        return
    if hasattr(sys.modules.get("tensorflow"), "random"):
        _set_default()
    else:
        after_import("tensorflow", _set_default)
