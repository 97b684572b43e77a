"""train_on_batch, test_on_batch and predict_on_batch: global batches in, global numbers out.

With one rank they are plain Keras. They take what `fit.fit` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import tree

from .._backend import backend
from .._exchange import name_of
from .._job import log, runtime
from .._job.log import abbreviated
from ..data import tf_data
from ..data.input import uses_pipelines
from . import call_data, epoch_end, model_state, private, replicas, start

_Method = Callable[..., Any]


def train(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.train_on_batch`."""
    if runtime.get_size() == 1:
        return method(**given)
    start.check_compiled(model, "train_on_batch")
    x, y, sample_weight, class_weight = (given[name] for name in ("x", "y", "sample_weight", "class_weight"))
    if class_weight is not None:
        if sample_weight is not None:
            raise ValueError("class_weight and sample_weight cannot be given at the same time")
        sample_weight = private.data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    batch = _micro_batch(model, "train", (x, y, sample_weight))
    replicas.before_step(model)
    model_state.of(model).count_single_batch()
    return _run(model, "train", batch, given["return_dict"])


def test(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.test_on_batch`."""
    if runtime.get_size() == 1:
        return method(**given)
    start.check_compiled(model, "test_on_batch")
    batch = _micro_batch(model, "test", (given["x"], given["y"], given["sample_weight"]))
    return _run(model, "test", batch, given["return_dict"])


def predict(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.predict_on_batch`."""
    if runtime.get_size() == 1:
        return method(**given)
    batch = _micro_batch(model, "predict", (given["x"],))
    outputs, positions, lengths = tree.map_structure(np.asarray, backend.run_step(model, "predict", batch))
    return call_data.in_order(outputs, positions, lengths, everywhere=True)


def _run(model: Any, kind: str, batch: Any, return_dict: bool) -> Any:
    with model_state.during(model, model_state.Call(kind == "train", on_batch=True)):
        if private.resets_metrics():
            model.reset_metrics()
        else:
            model_state.reset_unless_master(model)
        logs = epoch_end.flattened(private.results(model, backend.run_step(model, kind, batch)))
    return logs if return_dict else private.in_order(model, logs)


def _micro_batch(model: Any, kind: str, batch: Sequence[Any]) -> Any:
    """This rank's rows of a global batch for a step of that kind, with equal ranks. Collective.

    To "train", ranks are made equal the first time since the model was compiled only.
    """
    if not uses_pipelines():
        raise NotImplementedError(f"{kind}_on_batch on several ranks needs Keras's tensorflow backend so far")
    positions = kind == "predict"
    micro = tf_data.from_arrays.one_batch(batch, runtime.get_rank(), runtime.get_size(), positions)
    _start(model, kind, micro)
    return micro


def _start(model: Any, kind: str, micro: Any) -> None:
    known, tracker = model_state.of(model).equal_for, private.loss_tracker(model)
    if kind in known and known[kind] is tracker:
        differed = start.from_master(model, model.weights) if kind != "train" else []
        if differed:  # training on batches compares weights now and then, and would find those set in between
            log.warn_once(
                f"{abbreviated([name_of(v) for v in differed])}: ranks had different values, and now have the "
                f"master's. If you have not set them on the master, ranks train apart: {replicas.CURE}"
            )
        return
    # Rows differ from rank to rank and from call to call: no layer may be built for a number of them.
    specs = tf_data.from_arrays.types_of(micro.data)
    lines = [f"a part of a batch: {spec}" for spec in tree.flatten(specs)]
    rows = None if kind == "predict" else int(micro.metadata[1])
    start.synchronize_for_batches(model, kind, lines, micro._replace(data=specs), rows)
    known[kind] = private.loss_tracker(model)
