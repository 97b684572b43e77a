"""Broadcasts and gathers Python objects and variables."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import tensorflow as tf

from .. import _exchange
from .. import collectives as core
from ..keras import custom_loops, private
from . import collectives, process
from .process import ProcessSet, global_process_set

__all__ = ["allgather_object", "broadcast_global_variables", "broadcast_object", "broadcast_variables"]


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns a copy of the object of the rank `root_rank` of the job. The object must support pickle.

    Blocks until all ranks of the process set have called it. `session` and `name` have no effect.
    """
    process.check("broadcast_object")
    group = process_set.group()
    is_root = process.rank() == root_rank
    pickled = np.frombuffer(pickle.dumps(obj) if is_root else b"", np.uint8)
    length = core.broadcast(len(pickled), root_rank, group)
    return pickle.loads(core.broadcast(pickled if is_root else np.zeros(length, np.uint8), root_rank, group).tobytes())


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns copies of the objects of all ranks, in rank order. See `broadcast_object`."""
    process.check("allgather_object")
    every = _exchange.gather_bytes(pickle.dumps(obj), process_set.group().context())
    return [pickle.loads(each) for each in every if each]  # ranks in hvd.join have no bytes


@tf.autograph.experimental.do_not_convert
def broadcast_variables(
    variables: Any, root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> None:
    """Copies the values of variables of Keras or TensorFlow from one rank to all ranks.

    Random seed generators get a different stream on each rank; in a `tf.function` they keep their state. Blocks until
    all ranks of the process set have called it. Names may differ, because one rank may have loaded its model. Raises
    tarantella.MismatchError if the variables differ in number, shape or type.
    """
    process.check("broadcast_variables")
    process_set.group().announce("broadcast of variables")
    every = custom_loops.variables_of(variables)
    if tf.executing_eagerly():
        lines = [f"{tf.as_dtype(v.dtype).name} {tuple(v.shape)} at place {i}" for i, v in enumerate(every)]
        custom_loops.send(every, lines, root_rank, process_set.group())
    else:
        for each in every:
            if not private.is_seed(each):
                each.assign(collectives.broadcast(each, root_rank, process_set=process_set))


def broadcast_global_variables(root_rank: int) -> None:
    """Raises RuntimeError: Keras 3 has no list of all variables."""
    raise RuntimeError(
        "hvd.broadcast_global_variables is for TensorFlow 1: add hvd.callbacks.BroadcastGlobalVariablesCallback("
        f"{root_rank}) to fit, or call hvd.broadcast_variables(model.variables, root_rank={root_rank})"
    )
