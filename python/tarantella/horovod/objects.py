"""Python objects and variables from rank to rank, and the end of uneven data."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np

from .. import collectives as core
from .._job.errors import MismatchError
from ..keras.calls import custom_loops
from . import process
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
    send = core.Broadcast(group, root_rank)
    length = send.execute(len(pickled))
    return pickle.loads(send.execute(pickled if len(pickled) else np.zeros(length, np.uint8)).tobytes())


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Copies of the objects of all ranks, in rank order. As `broadcast_object` otherwise."""
    process.check("allgather_object")
    gather = core.Allgatherv(process_set.group())
    pickled = _pickled(obj)
    lengths, joined = gather.execute(len(pickled)), gather.execute(pickled)
    return [pickle.loads(part.tobytes()) for part in np.split(joined, np.cumsum(lengths)[:-1])]


def _pickled(obj: Any) -> Any:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


def broadcast_variables(
    variables: Any, root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> None:
    """Gives all ranks the values that one rank has in these variables: a list of them, or of TensorFlow's.

    Generators of random numbers get a stream of their own on each rank. Blocks until all ranks of the process set have
    called it. Raises tarantella.MismatchError where the variables differ in number, name, shape or type.
    """
    process.check("broadcast_variables")
    custom_loops.broadcast_variables(variables, root_rank, process_set.group())


def broadcast_global_variables(root_rank: int) -> None:
    """Raises RuntimeError: Keras 3 has no list of all variables."""
    raise RuntimeError(
        "hvd.broadcast_global_variables is for TensorFlow 1: add hvd.callbacks.BroadcastGlobalVariablesCallback("
        f"{root_rank}) to fit, or call hvd.broadcast_variables(model.variables, root_rank={root_rank})"
    )


def join() -> int:
    """Waits for all ranks, and returns the one that came last.

    Horovod's ranks may join after different numbers of steps. Here all must have taken equally many: raises
    tarantella.MismatchError on ranks that joined while another still reduces.
    """
    process.check("join")
    try:
        came = core.Allgatherv().execute(time.monotonic())  # one clock for all processes of a machine
    except MismatchError as error:
        raise MismatchError(
            f"hvd.join: the ranks have not taken equally many steps, which join needs here ({error}); give every rank "
            "the same number of batches: steps_per_epoch=, or dataset.take(n)"
        ) from error
    return int(np.argmax(came))
