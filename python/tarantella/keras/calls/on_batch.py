"""train_on_batch, test_on_batch and predict_on_batch: global batches in, global numbers out.

With one rank they are plain Keras.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import tree

from ..._job import runtime
from ...data import arrays
from ...data.rows import PredictBatch, share
from ...data.tf_data import of_arrays
from ...data.tf_data.slicer import micro_batch
from .. import private, training
from ..epoch import drift, layer_state, user_logs
from . import row_order, start

# In earlier Keras 3 the metrics run on from batch to batch, and from what fit and evaluate left.
_RESETS = "reset_metrics" in inspect.unwrap(keras.Model.train_on_batch).__code__.co_names


def train(model: Any, x: Any, y: Any, sample_weight: Any, class_weight: Any, return_dict: bool) -> Any:
    """`keras.Model.train_on_batch`."""
    if runtime.get_size() == 1:
        return model.train_on_batch(x, y, sample_weight, class_weight, return_dict)
    with start.core_errors():
        start.check_compiled(model, "train_on_batch")
        if class_weight is not None:
            if sample_weight is not None:
                raise ValueError("class_weight and sample_weight cannot be given at the same time")
            sample_weight = private.class_weight_to_sample_weights(y, class_weight)
        batch = _micro_batch(model, (x, y, sample_weight))
        model.make_train_function()
        drift.before_step(model)
        return _run(model, model.train_function, batch, return_dict, trains=True)


def test(model: Any, x: Any, y: Any, sample_weight: Any, return_dict: bool) -> Any:
    """`keras.Model.test_on_batch`."""
    if runtime.get_size() == 1:
        return model.test_on_batch(x, y, sample_weight, return_dict)
    with start.core_errors():
        start.check_compiled(model, "test_on_batch")
        batch = _micro_batch(model, (x, y, sample_weight))
        layer_state.average_if_apart(model)
        model.make_test_function()
        return _run(model, model.test_function, batch, return_dict, trains=False)


def predict(model: Any, x: Any) -> Any:
    """`keras.Model.predict_on_batch`."""
    if runtime.get_size() == 1:
        return model.predict_on_batch(x)
    with start.core_errors():
        batch = _micro_batch(model, (x,), positions=True)
        layer_state.average_if_apart(model)
        model.make_predict_function()
        outputs, positions = model.predict_function([batch])
        return row_order.in_order(tree.map_structure(np.asarray, outputs), np.asarray(positions), everywhere=True)


def _run(model: Any, function: Any, batch: Any, return_dict: bool, trains: bool) -> Any:
    with training.during(model, training.Call(trains, on_batch=True)):
        if _RESETS:
            model.reset_metrics()
        else:
            training.go_on(model)
        logs = user_logs.flattened(model._get_metrics_result_or_logs(function(iter([batch]))))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def _micro_batch(model: Any, batch: Sequence[Any], positions: bool = False) -> Any:
    """This rank's rows of a global batch. Collective the first time since the model was compiled."""
    total = arrays.rows(batch)
    start, rows = share(total, runtime.get_rank(), runtime.get_size())
    whole = of_arrays.sliceable(tuple(batch))
    data = of_arrays.take_rows(whole, slice(start, start + rows) if rows else slice(0, 1))
    if positions:
        places = np.arange(start, start + rows) if rows else np.array([-1])
        micro: Any = PredictBatch(data, tf.constant(places, tf.int64))
    else:
        mine, whole_batch, mark = (tf.constant(n, tf.int64) for n in (rows, total, of_arrays.checksum(whole)))
        micro = micro_batch(data, mine, whole_batch, mark, padded=total < runtime.get_size())
    _start(model, micro)
    return micro


def _start(model: Any, micro: Any) -> None:
    known = training.of(model)
    if known.is_equal_for_single_batches(model):
        return
    # Rows differ from rank to rank and from call to call: no layer may be built for a number of them.
    specs = tree.map_structure(lambda leaf: None if leaf is None else _spec(leaf), micro.data)
    lines = [f"a part of a batch: {spec}" for spec in tree.flatten(specs)]
    start.batches_alike(model, lines, micro._replace(data=specs))
    known.set_equal_for_single_batches(model)


def _spec(leaf: Any) -> tf.TypeSpec:
    shape = [None, *leaf.shape[1:]]
    kind = tf.SparseTensorSpec if isinstance(leaf, tf.SparseTensor) else tf.TensorSpec
    return kind(shape, leaf.dtype)
