"""`import tarantella.horovod.tensorflow as hvd`: as `tarantella.horovod.keras`, with TensorFlow's arguments.

Functions such as `rank_op` return a tensor that is computed each time a graph runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .. import collectives as _collectives
from .. import keras as _of_keras
from .. import process as _process
from ..keras import *  # noqa: F403
from ..process import get_process_set_ids_and_ranks, global_process_set
from ..reductions import Average, Compression

# Horovod's codes.
_NOT_INITIALIZED, _UNKNOWN_SET = -1, -3


def DistributedOptimizer(  # type: ignore[no-redef]  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """`tarantella.horovod.keras.DistributedOptimizer`, in TensorFlow's order; `use_locking` changes nothing."""
    options = {**locals()}
    del options["use_locking"]
    return _of_keras.DistributedOptimizer(**options)


def rank_op(name: str | None = None) -> tf.Tensor:
    """`hvd.rank()` as an int32 tensor."""
    return _read(_process.rank, name, "rank_op")


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """`hvd.local_rank()` as an int32 tensor."""
    return _read(_process.local_rank, name, "local_rank_op")


def local_size_op(name: str | None = None) -> tf.Tensor:
    """`hvd.local_size()` as an int32 tensor."""
    return _read(_process.local_size, name, "local_size_op")


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of processes in a process set as an int32 tensor. Fails if no set has the id."""

    def size() -> int:
        sets = get_process_set_ids_and_ranks()
        if process_set_id not in sets:
            raise ValueError(f"hvd.size_op: no process set has the id {process_set_id} (there are {sorted(sets)})")
        return len(sets[process_set_id])

    return _read(size, name, "size_op")


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Whether this process is in a process set: 1 or 0; -1 before `hvd.init`, -3 if no set has the id."""

    def included() -> int:
        if not _process.is_initialized():
            return _NOT_INITIALIZED
        ranks = get_process_set_ids_and_ranks().get(process_set_id)
        return _UNKNOWN_SET if ranks is None else int(_process.rank() in ranks)

    return _read(included, name)


@tf.autograph.experimental.do_not_convert
def _read(value: Callable[[], int], name: str | None, needs_init: str = "") -> tf.Tensor:
    """`needs_init`: the name in the error before `hvd.init`; empty if the function works before it."""

    def now() -> np.int32:
        if needs_init:
            _process.check(needs_init)
        return np.int32(value())

    if tf.executing_eagerly():
        return tf.constant(now(), name=name)
    read = tf.numpy_function(now, [], tf.int32, name=name)
    read.set_shape(())
    return read


# After those of Keras, which have other arguments.
allreduce, allgather = _collectives.allreduce, _collectives.allgather
broadcast, reducescatter = _collectives.broadcast, _collectives.reducescatter

__all__ = [
    *_of_keras.__all__,
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]
