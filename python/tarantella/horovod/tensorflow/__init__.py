"""`import tarantella.horovod.tensorflow as hvd`: as `tarantella.horovod.keras`, with TensorFlow's arguments."""

from __future__ import annotations

from typing import Any

from .. import keras as _of_keras
from ..collectives import allgather, allreduce, broadcast, reducescatter  # noqa: F401
from ..keras import *  # noqa: F403


def DistributedOptimizer(  # type: ignore[no-redef]  # noqa: N802 (Horovod's name)
    optimizer: Any, name: str | None = None, use_locking: bool = False, *args: Any, **options: Any
) -> Any:
    """`tarantella.horovod.keras.DistributedOptimizer`; `use_locking` changes nothing."""
    return _of_keras.DistributedOptimizer(optimizer, name, *args, **options)


__all__ = list(_of_keras.__all__)
