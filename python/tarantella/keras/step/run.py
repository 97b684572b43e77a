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
from ..._job import runtime
from ...data import tf_data
from ...data.rows import MicroBatch, PaddedMicroBatch, PredictBatch
from .. import hooks, private, training
from ..hooks import hook, hook_functions
from . import first_batch, gradients, metrics, normalization
from .step import Step, running


def install(model: Any) -> None:
    """Hooks the steps of a Keras model and the functions that run them. Idempotent."""
    fresh = hook(model, "train_step", functools.partial(_step, model, True))
    fresh |= hook(model, "test_step", functools.partial(_step, model, False))
    fresh |= hook(model, "predict_step", _predict_step)
    for kind in ("train", "test"):
        hook_functions(model, kind, functools.partial(_function, model, kind))
    if fresh:  # functions that Keras made before still hold the plain steps
        model.train_function = model.test_function = model.predict_function = None


def _function(model: Any, kind: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if kind == "train":
        training.of(model).known_as_summed.clear()  # it will be traced anew
    return first_batch.looking_at_it(model, kind == "train", function)


def _run(model: Any, step: Step, original: Callable[[Any], Any], data: Any) -> Any:
    if step.copied is None:
        return original(data)
    alike = {id(v) for layer in normalization.synchronized(model) for v in layer.non_trainable_variables}
    others = [v for v in model.non_trainable_variables if id(v) not in alike]
    metrics = model.metrics_variables
    whole = training.of(model).whole

    def kept() -> list[Any]:
        return [v for metric in whole.values() for v in metric.variables]

    logs = backend.undo_where(step.copied, metrics, others, lambda: original(data), kept)
    if model.run_eagerly and step.copied:  # metrics that this very step made have seen the copied row alone
        known = {id(v) for v in metrics}
        for metric in private.metrics_of(model):
            if id(metric) not in whole and any(id(v) not in known for v in metric.variables):
                metric.reset_state()
    return logs


def _step(model: Any, trains: bool, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The hook of `train_step` or `test_step`."""

    def run_step(batch: Any) -> Any:
        if not isinstance(batch, tf_data.per_rank.PerRankBatch):
            return _run_step(model, trains, original, batch)
        with backend.together(model, batch.data, batch.rows) as parts:
            return _run_step(model, trains, original, tf_data.slicer.micro_batch(*parts, padded=True))

    return run_step


def _run_step(model: Any, trains: bool, original: Callable[[Any], Any], batch: Any) -> Any:
    if not isinstance(batch, (MicroBatch, PaddedMicroBatch)):
        return original(batch)
    method = "train_step" if trains else "test_step"
    is_keras_own = hooks.are_keras_own(model, method)
    has_users = not (is_keras_own and hooks.are_keras_own(model, "compute_loss", "compute_metrics"))
    is_numbered = has_users and runtime.get_size() > 1
    kept = training.of(model).numbers if is_numbered or backend.current_trace() is None else None
    with running(Step(model, batch, kept, is_keras_own, is_numbered, trains)) as step:
        training.note(model, step.fingerprint, step.labels if trains else ())
        logs = _run(model, step, original, batch.data)
        metrics.note_logs(step, trains, logs)
        if trains and is_numbered:
            gradients.of(step).end()
        return logs


def _predict_step(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def predict_step(batch: Any) -> Any:
        if not isinstance(batch, PredictBatch):
            return original(batch)
        outputs = original(batch.data)
        lengths = [batch.positions, *tree.flatten(outputs)]
        # Ragged ones have none, and are refused later.
        counts = [0 if backend.why_not_gathered(each) else ops.shape(each)[0] for each in lengths]
        return outputs, batch.positions, ops.stack([ops.cast(each, "int64") for each in counts])[None]

    return predict_step
