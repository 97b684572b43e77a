"""`hvd.rank_op` and its like: a process's place in its job as a tensor, read whenever a graph runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from . import process
from .process_sets import get_process_set_ids_and_ranks

# Horovod's codes.
NOT_INITIALIZED, UNKNOWN_SET = -1, -3


def rank_op(name: str | None = None) -> tf.Tensor:
    """`hvd.rank()` as an int32 tensor."""
    return _read(process.rank, name, "rank_op")


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """`hvd.local_rank()` as an int32 tensor."""
    return _read(process.local_rank, name, "local_rank_op")


def local_size_op(name: str | None = None) -> tf.Tensor:
    """`hvd.local_size()` as an int32 tensor."""
    return _read(process.local_size, name, "local_size_op")


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of processes in a process set as an int32 tensor. Fails for an id that no set has."""

    def size() -> int:
        sets = get_process_set_ids_and_ranks()
        if process_set_id not in sets:
            raise ValueError(f"hvd.size_op: no process set has the id {process_set_id} (there are {sorted(sets)})")
        return len(sets[process_set_id])

    return _read(size, name, "size_op")


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Whether this process is in a process set: 1 or 0; -1 before `hvd.init`, -3 if no set has the id."""

    def included() -> int:
        if not process.is_initialized():
            return NOT_INITIALIZED
        ranks = get_process_set_ids_and_ranks().get(process_set_id)
        return UNKNOWN_SET if ranks is None else int(process.rank() in ranks)

    return _read(included, name)


@tf.autograph.experimental.do_not_convert
def _read(value: Callable[[], int], name: str | None, needs_init: str = "") -> tf.Tensor:
    """`needs_init` is what an error before `hvd.init` names."""

    def now() -> np.int32:
        if needs_init:
            process.check(needs_init)
        return np.int32(value())

    if tf.executing_eagerly():
        return tf.constant(now(), name=name)
    read = tf.numpy_function(now, [], tf.int32, name=name)
    read.set_shape(())
    return read
