"""train_on_batch, test_on_batch and predict_on_batch on several ranks: global batches in, global numbers out."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

from .. import _runtime
from ..data import arrays
from ..data.shares import PredictBatch, micro_batch, share
from . import checks, gather, metrics, own_logs, session, statistics

# In earlier Keras 3 the metrics run on from batch to batch, and from what fit and evaluate left.
_RESETS = "reset_metrics" in inspect.unwrap(keras.Model.train_on_batch).__code__.co_names

# By model: what its last compile() made, when ranks were made equal. Another one calls for doing so again.
_started: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def train(model: Any, x: Any, y: Any, sample_weight: Any, class_weight: Any, return_dict: bool) -> Any:
    """Distributed `keras.Model.train_on_batch`."""
    session.check_compiled(model, "train_on_batch")
    if class_weight is not None:
        if sample_weight is not None:
            raise ValueError("class_weight and sample_weight cannot be given at the same time")
        sample_weight = class_weight_to_sample_weights(y, class_weight)
    batch = _micro_batch(model, (x, y, sample_weight))
    model.make_train_function()
    checks.before_step(model)
    return _run(model, model.train_function, batch, return_dict, trains=True)


def test(model: Any, x: Any, y: Any, sample_weight: Any, return_dict: bool) -> Any:
    """Distributed `keras.Model.test_on_batch`."""
    session.check_compiled(model, "test_on_batch")
    batch = _micro_batch(model, (x, y, sample_weight))
    statistics.average_if_apart(model)
    model.make_test_function()
    return _run(model, model.test_function, batch, return_dict, trains=False)


def predict(model: Any, x: Any) -> Any:
    """Distributed `keras.Model.predict_on_batch`."""
    batch = _micro_batch(model, (x,), positions=True)
    statistics.average_if_apart(model)
    model.make_predict_function()
    outputs, positions = model.predict_function([batch])
    return gather.in_order(tree.map_structure(np.asarray, outputs), np.asarray(positions), everywhere=True)


def _run(model: Any, function: Any, batch: Any, return_dict: bool, trains: bool) -> Any:
    with metrics.during(model, metrics.Call(trains, on_batch=True)):
        if _RESETS:
            model.reset_metrics()
        else:
            metrics.go_on(model)
        logs = own_logs.flattened(model._get_metrics_result_or_logs(function(iter([batch]))))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def _micro_batch(model: Any, batch: Sequence[Any], positions: bool = False) -> Any:
    """This rank's rows of a global batch. Collective the first time since the model was compiled."""
    total = arrays.rows(batch)
    start, rows = share(total, _runtime.get_rank(), _runtime.get_size())
    whole = arrays.sliceable(tuple(batch))
    data = arrays.take_rows(whole, slice(start, start + rows) if rows else slice(0, 1))
    if positions:
        places = np.arange(start, start + rows) if rows else np.array([-1])
        micro: Any = PredictBatch(data, tf.constant(places, tf.int64))
    else:
        mine, whole_batch, mark = (tf.constant(n, tf.int64) for n in (rows, total, arrays.checksum(whole)))
        micro = micro_batch(data, mine, whole_batch, mark, padded=total < _runtime.get_size())
    _start(model, micro)
    return micro


def _start(model: Any, micro: Any) -> None:
    compiled = getattr(model, "_loss_tracker", None)
    if model in _started and _started[model] is compiled:
        return
    # Rows differ from rank to rank and from call to call: no layer may be built for a number of them.
    specs = tree.map_structure(lambda leaf: None if leaf is None else _spec(leaf), micro.data)
    lines = [f"a part of a batch: {spec}" for spec in tree.flatten(specs)]
    session.start(model, lines, micro._replace(data=specs))
    _started[model] = compiled


def _spec(leaf: Any) -> tf.TypeSpec:
    shape = [None, *leaf.shape[1:]]
    kind = tf.SparseTensorSpec if isinstance(leaf, tf.SparseTensor) else tf.TensorSpec
    return kind(shape, leaf.dtype)
