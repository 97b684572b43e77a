"""`import tarantella.horovod.keras as hvd`: Horovod's functions for Keras.

The collectives take values first and return tensors; `tarantella.horovod.tensorflow` has them with all arguments.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .. import collectives, elastic, objects, process, reductions
from ..collectives import alltoall, barrier, grouped_allgather, grouped_allreduce, grouped_reducescatter
from ..join import join
from ..normalization import SyncBatchNormalization
from ..objects import *  # noqa: F403
from ..optimizer import DistributedOptimizer, PartialDistributedOptimizer, load_model
from ..process import *  # noqa: F403
from ..process import ProcessSet, global_process_set
from ..reductions import *  # noqa: F403
from ..reductions import Average, Compression
from ..tape import DistributedGradientTape, PartialDistributedGradientTape
from . import callbacks


@tf.autograph.experimental.do_not_convert
def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of each element over the ranks, by default the average: `collectives.allreduce`."""
    options = {**locals()}
    return collectives.allreduce(options.pop("value"), **options)


@tf.autograph.experimental.do_not_convert
def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The rows of all ranks in rank order: `collectives.allgather`."""
    return collectives.allgather(value, process_set=process_set)


@tf.autograph.experimental.do_not_convert
def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The value of one rank: `collectives.broadcast`."""
    return collectives.broadcast(value, root_rank, process_set=process_set)


@tf.autograph.experimental.do_not_convert
def reducescatter(
    value: Any, name: str | None = None, op: Any = Average, process_set: ProcessSet = global_process_set
) -> Any:
    """This rank's rows of the reduction: `collectives.reducescatter`."""
    return collectives.reducescatter(value, op=op, process_set=process_set)


__all__ = [
    *objects.__all__,
    *process.__all__,
    *reductions.__all__,
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "SyncBatchNormalization",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "callbacks",
    "elastic",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "load_model",
    "reducescatter",
]
