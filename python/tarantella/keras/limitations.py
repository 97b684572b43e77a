"""Differences from one process: warned about once, explained in an error, or avoided by switching XLA off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from .._backend import backend
from .._job import log, runtime
from .._job.log import abbreviated
from ..data.input import DistributedInput
from ..data.rows import rows_of_rank
from . import hooks, model_state, private, replicas
from .step import batch_dependent
from .step.step import tnt_reduction_of


def warn(model: Any) -> None:
    """Logs the parts of a model that make training differ from one process."""
    normalized = [each.name for each in replicas.normalizations(model) if each.trainable and not each.synchronized]
    if normalized:
        log.warn_once(
            f"{abbreviated(normalized)} (BatchNormalization): each rank normalizes its own rows, so training differs "
            "from one process; moving statistics are averaged over the ranks after every epoch; synchronized=True "
            "normalizes all rows together"
        )
    own_loss = [name for name in ("compute_loss", "train_step") if is_overridden(model, name)]
    if batch_dependent.loss_uses(model):
        own_loss.remove("compute_loss")
    if own_loss and not tnt_reduction_of(model):
        log.warn_once(
            f"{model.name} (user-defined {' and '.join(own_loss)}): its loss is assumed to be a mean over rows, which "
            "cannot be checked; declare tnt_reduction = 'mean' in the model's class, or 'sum' if it is a sum over rows"
        )
    warn_of_metrics(model)
    if any(private.is_seed(v) for v in model.variables):
        log.logger.info("random layers draw different numbers on each rank, reproducible from the seed")


def warn_of_metrics(model: Any) -> None:
    """Like `warn`, for the metrics built so far."""
    compiled = {id(metric) for metric in private.metrics_to_compile(model)}
    own = [
        metric.name
        for metric in private.metrics_of(model)
        if id(metric) not in compiled and not private.is_of_keras(type(metric)) and not hasattr(metric, "tnt_combine")
    ]
    if own:
        log.warn_once(
            f"{abbreviated(own)} (user-defined metrics): the states of the ranks are summed, which is right for counts "
            "and totals; otherwise declare how they combine: tnt_combine = 'max', 'min' or a function of the states"
        )


def is_overridden(model: Any, method: str) -> bool:
    """Whether the model's class overrides the method."""
    return getattr(type(model), method) is not getattr(keras.Model, method)


@contextlib.contextmanager
def no_xla_for_own_data(model: Any, parts: list[DistributedInput]) -> Iterator[None]:
    """Makes uncompiled steps for a call with data of each rank's own, of which no step knows whether it is the last."""
    if not model.jit_compile or all(each.distributed for each in parts):
        yield
        return
    log.warn_once("jit_compile=True is switched off for data of each rank's own")
    with hooks.setting(model, jit_compile=False, train_function=None, test_function=None):
        yield  # a call around this one may be running its own functions


def no_xla_where_impossible(model: Any, *kinds: str) -> None:
    """Makes uncompiled steps of these kinds, "train" and "test", where XLA cannot reduce over the ranks."""
    if not model.jit_compile:
        return
    layers = private.every_layer(model)
    sparse = [each.name for each in layers if isinstance(each, keras.layers.Embedding) and each.trainable_weights]
    reason = backend.why_not_compiled()
    functions = ["compute_loss"] * bool(batch_dependent.loss_uses(model)) + batch_dependent.computed_on_all_rows(model)
    if not reason and functions:
        reason = f"the rows of all ranks for {', '.join(functions)}, which tnt_reduction = 'mean' or 'sum' would save"
    if not reason and sparse and "train" in kinds:
        kinds, reason = ("train",), f"the sparse gradients of {', '.join(sparse)} (Embedding)"
    for kind in kinds if reason else ():
        if getattr(model, f"{kind}_function") is None:
            called = {"train": "training", "test": "evaluation"}[kind]
            log.warn_once(f"jit_compile=True is switched off for {called} on several ranks: not possible with {reason}")
            with hooks.setting(model, jit_compile=False):
                getattr(model, f"make_{kind}_function")(force=True)


# Named, because without TensorFlow it has no class.
_OF_TENSORFLOW = "InvalidArgumentError"


@contextlib.contextmanager
def explaining_row_errors(model: Any, kind: str, part: DistributedInput) -> Iterator[None]:
    """Raises ValueError in the place of an error that comes from the number of rows: in stateful layers, in own steps.

    Whether it comes from that in a model's own `kind`_step is found out by tracing this for both numbers. An error
    after training steps of this call has another cause.
    """
    try:
        yield
    except Exception as error:
        reason = None
        # What a step raises for its data. Others must end this rank at once: a trace may wait for ranks.
        of_data = isinstance(error, (ValueError, TypeError, IndexError)) or type(error).__name__ == _OF_TENSORFLOW
        if of_data and model_state.of(model).completed <= 0:
            with contextlib.suppress(Exception):  # whatever the user's data raise: the first error is the one to show
                reason = _reason_of_rows(model, kind, part)
        if reason is None:
            raise
        raise ValueError(reason) from error


def _reason_of_rows(model: Any, kind: str, part: DistributedInput) -> str | None:
    stateful = [each.name for each in private.every_layer(model) if getattr(each, "stateful", False)]
    if stateful:
        return (
            f"{abbreviated(stateful)} of {model.name} is stateful: it keeps a state for each row of a batch, and a "
            "rank has only its own rows; pass stateful=False, or train on one rank"
        )
    if not is_overridden(model, f"{kind}_step"):
        return None
    whole, spec = part.rows_of_a_batch(), part.batches.element_spec
    local = max(1, rows_of_rank(whole or 0, runtime.get_rank(), runtime.get_size())[1])
    step = hooks.original(model, f"{kind}_step")
    if whole is None or _traces(step, spec.data, local) or not _traces(step, spec.data, whole):
        return None
    return (
        f"the {kind}_step of {model.name} fails for this rank's {local} of the {whole} rows of a batch, and not for "
        "all of them: each rank takes its rows, along axis 0, of every part of a batch; let axis 0 be the rows, and "
        "where the step has a constant for their number take it from the batch: keras.ops.shape(x)[0]"
    )


def _traces(step: Any, spec: Any, rows: int) -> bool:
    try:
        backend.trace(step, spec, rows)
    except Exception:  # whatever user code raises
        return False
    return True
