"""`SyncBatchNormalization`: BatchNormalization with moments over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from .._backend import backend
from .._job import runtime
from ..keras import private
from .process import global_process_set


@keras.saving.register_keras_serializable(package="tarantella.horovod")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """Keras's BatchNormalization that uses the moments of all ranks in training.

    The moments are exact if all ranks have equally many rows: each rank has the same weight. All ranks must run the
    layer equally often. Import `tarantella.horovod` before loading a model with this layer.
    """

    def __init__(self, fused: bool | None = False, **options: Any) -> None:
        """Raises ValueError for `fused`, as Horovod does."""
        if fused is not False:
            raise ValueError("SyncBatchNormalization cannot be fused: leave fused out")
        super().__init__(**options)


def _moments(self: Any, inputs: Any, mask: Any = None) -> Any:
    local = getattr(super(SyncBatchNormalization, self), private.MOMENTS)(inputs, mask)
    if runtime.get_size() == 1:
        return local
    mean, variance = (ops.reshape(ops.cast(each, "float64"), (-1,)) for each in local)
    channels = int(mean.shape[0])
    parts = ops.concatenate([mean, variance + ops.square(mean)]) / runtime.get_size()
    # Without the layer's name, which may differ: Keras numbers the layers of each process.
    what = "moments of SyncBatchNormalization"
    parts = backend.sum_over_ranks(
        self, what, parts, differentiable=True, context=lambda: global_process_set.group().context()
    )
    mean, squares = parts[:channels], parts[channels:]
    whole = (mean, ops.maximum(squares - ops.square(mean), 0.0))
    return tuple(ops.reshape(ops.cast(new, old.dtype), old.shape) for new, old in zip(whole, local, strict=True))


setattr(SyncBatchNormalization, private.MOMENTS, _moments)
