"""`import tarantella.horovod.keras as hvd`: Horovod's functions for Keras.

The collectives take values first and return tensors; `tarantella.horovod.tensorflow` has them with all arguments.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .. import callbacks, collectives, elastic
from ..collectives import alltoall, barrier, grouped_allgather, grouped_allreduce, grouped_reducescatter
from ..join import join
from ..load_model import load_model
from ..normalization import SyncBatchNormalization
from ..objects import allgather_object, broadcast_global_variables, broadcast_object, broadcast_variables
from ..optimizer import DistributedOptimizer, PartialDistributedOptimizer
from ..process import (
    ProcessSet,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    get_process_set_ids_and_ranks,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from ..reductions import Adasum, Average, Compression, Max, Min, Product, Sum
from ..tape import DistributedGradientTape, PartialDistributedGradientTape


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
    return collectives.allreduce(
        value,
        average,
        op=op,
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )


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
    "Adasum",
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
