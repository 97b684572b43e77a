"""Python objects and variables from rank to rank."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import tensorflow as tf

from .. import collectives as core
from ..keras import private
from ..keras.calls import custom_loops
from . import collectives, process
from .process_sets import ProcessSet, global_process_set


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """A copy of the object of one rank, whose number in the job is `root_rank`. It must pickle.

    Blocks until all ranks of the process set have called it. `session` and `name` change nothing.
    """
    process.check("broadcast_object")
    group = process_set.group()
    pickled = _pickled(obj) if process.rank() == root_rank else np.zeros(0, np.uint8)
    length = core.broadcast(len(pickled), root_rank, group)
    return pickle.loads(
        core.broadcast(pickled if len(pickled) else np.zeros(length, np.uint8), root_rank, group).tobytes()
    )


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Copies of the objects of all ranks, in rank order. As `broadcast_object` otherwise."""
    process.check("allgather_object")
    group, pickled = process_set.group(), _pickled(obj)
    lengths, joined = core.allgather(len(pickled), group), core.allgather(pickled, group)
    return [pickle.loads(part.tobytes()) for part in np.split(joined, np.cumsum(lengths)[:-1])]


def _pickled(obj: Any) -> Any:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


@tf.autograph.experimental.do_not_convert
def broadcast_variables(
    variables: Any, root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> None:
    """Gives all ranks the values that one rank has in these variables: a list of them, or of TensorFlow's.

    Generators of random numbers get a stream of their own on each rank; in a `tf.function` they keep what they have.
    Blocks until all ranks of the process set have called it. Names may differ: one rank may have loaded its model.
    Raises tarantella.MismatchError where the variables differ in number, shape or type.
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
