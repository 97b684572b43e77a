"""What a distributed train, test or predict step adds to Keras's own.

Hooks are attributes of the model's instance, never subclasses: what Keras saves stays plain Keras. They
act on our own batches only, so that the same model given any other data is plain Keras on this rank.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras import ops, tree

from ..._backend import backend
from ..._backend.steps import KerasStep, Rollback
from ..._job import runtime
from ...data import tf_data
from ...data.rows import MicroBatch, PaddedMicroBatch, PredictBatch
from .. import hooks, model_state, private
from ..hooks import hook, hook_functions
from . import batch_dependent, first_batch, gradients, metrics
from .step import Step, running


def install(model: Any) -> None:
    """Hooks the steps of a Keras model and the functions that run them. Idempotent."""
    fresh = False
    for owner, name, make in backend.step_hooks(model, functools.partial(_run, model)):
        fresh |= hook(owner, name, make)
    if not backend.steps_are_stateful:  # there Keras itself builds what a step needs, before the first
        hook(model, private.SYMBOLIC_BUILD, _symbolic_build)
    for kind in ("train", "test"):
        hook_functions(model, kind, functools.partial(_function, model, kind))
    if fresh:  # functions that Keras made before still hold the plain steps
        model.train_function = model.test_function = model.predict_function = None


def _function(model: Any, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    trains = kind == "train"
    if trains:
        model_state.of(model).already_summed.clear()  # it will be traced again

    def begin(batches: Any) -> Any:
        batches = first_batch.inspect_first_batch(model, trains, batches)
        return batches if backend.steps_are_stateful else map(functools.partial(_counted, model, trains), batches)

    return lambda *given: function(*given[:-1], begin(given[-1]))  # JAX's take the state before the batches


def _symbolic_build(original: Callable[..., Any]) -> Callable[..., Any]:
    """For batches of our own types, which Keras would take for inputs and labels. Keras reads one only to build."""

    def symbolic_build(iterator: Any = None, data_batch: Any = None) -> Any:
        batches = None if iterator is None else ((*place, map(_data_of, each)) for *place, each in iterator)
        return original(iterator=batches, data_batch=_data_of(data_batch))

    return symbolic_build


def _data_of(batch: Any) -> Any:
    return batch.data if isinstance(batch, (MicroBatch, PaddedMicroBatch, PredictBatch)) else batch


def _labels(batch: Any) -> list[Any]:
    """Those of a batch of inputs, labels and sample weights."""
    return tree.flatten(batch.data[1:2]) if isinstance(batch.data, tuple) else []


def _counted(model: Any, trains: bool, batch: Any) -> Any:
    if isinstance(batch, (MicroBatch, PaddedMicroBatch)):
        model_state.note_batch(model, batch.metadata[2], _labels(batch) if trains else ())
    return batch


def _run(model: Any, kind: str, batch: Any, keras_step: KerasStep) -> Any:
    """What runs in the place of Keras's step."""
    if isinstance(batch, PredictBatch):
        return _predicted(batch, keras_step)
    if isinstance(batch, (MicroBatch, PaddedMicroBatch)):
        return _run_step(model, kind == "train", batch, keras_step)
    if not tf_data.is_per_rank(batch):
        return keras_step(batch)
    with tf_data.per_rank.with_global_rows(model, batch) as whole:
        return _run_step(model, kind == "train", whole, keras_step)


def _run_step(model: Any, trains: bool, batch: Any, keras_step: KerasStep) -> Any:
    method = "train_step" if trains else "test_step"
    is_keras_own = hooks.are_keras_own(model, method)
    has_user_code = not (is_keras_own and hooks.are_keras_own(model, "compute_loss", "compute_metrics"))
    if has_user_code and not backend.steps_are_stateful:
        raise NotImplementedError(
            f"{model.name} has its own {method}, compute_loss or compute_metrics; several ranks run these on Keras's "
            "tensorflow backend only so far"
        )
    compares_step_number = has_user_code and runtime.get_size() > 1
    metadata_variable = (
        model_state.of(model).step_metadata if compares_step_number or backend.current_trace() is None else None
    )
    with running(Step(model, batch, metadata_variable, is_keras_own, compares_step_number, trains)) as step:
        if backend.steps_are_stateful:
            model_state.note_batch(model, step.fingerprint, _labels(batch) if trains else ())
        logs = _run_keras_step(model, step, keras_step, batch.data)
        metrics.note_logs(step, trains, logs)
        if trains and compares_step_number:
            gradients.of(step).end()
        return logs


def _run_keras_step(model: Any, step: Step, keras_step: KerasStep, data: Any) -> Any:
    if step.padding is None:
        return keras_step(data)
    same_on_all_ranks = {id(v) for layer in batch_dependent.synchronized(model) for v in layer.non_trainable_variables}
    others = [v for v in model.non_trainable_variables if id(v) not in same_on_all_ranks]
    metrics = model.metrics_variables
    whole = model_state.of(model).global_metrics
    rollback = Rollback(
        step.padding, metrics, others, lambda: [v for metric in whole.values() for v in metric.variables]
    )
    logs = keras_step(data, rollback)
    if model.run_eagerly and step.padding:  # metrics that this very step made have seen the padding row only
        known = {id(v) for v in metrics}
        for metric in private.metrics_of(model):
            if id(metric) not in whole and any(id(v) not in known for v in metric.variables):
                metric.reset_state()
    return logs


def _predicted(batch: PredictBatch, keras_step: KerasStep) -> Any:
    outputs = keras_step(batch.data)
    lengths = [batch.positions, *tree.flatten(outputs)]
    # Ragged ones have none, and are refused later.
    counts = [0 if backend.why_not_gathered(each) else ops.shape(each)[0] for each in lengths]
    return outputs, batch.positions, ops.stack([ops.cast(each, "int64") for each in counts])[None]
