"""The core's operations, for graphs and eager calls."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import tensorflow as tf

LIBRARY = str(Path(__file__).parents[2] / "libtarantella_tensorflow.so")


@functools.lru_cache(maxsize=1)
def operations() -> Any:
    """The functions that call them. Loads them when it is first called."""
    return tf.load_op_library(LIBRARY)
