"""`import tarantella.horovod.tensorflow as hvd`: as `tarantella.horovod.keras`, with TensorFlow's arguments."""

from __future__ import annotations

from typing import Any

from .. import collectives as _collectives
from .. import keras as _of_keras
from ..keras import *  # noqa: F403
from ..ops import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op
from ..process_sets import global_process_set
from ..reductions import Average, Compression


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
    return _of_keras.DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )


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
