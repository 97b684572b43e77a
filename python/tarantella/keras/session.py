"""One distributed call of fit, evaluate or predict: checks, equal starts, then Keras's own loop."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
from keras import tree
from keras.src.trainers.data_adapters.array_slicing import train_validation_split

from .. import _log, _runtime
from .._backend import tensorflow as backend
from .._environment import prints_output
from .._errors import Error
from ..data import arrays
from ..data.shares import MicroBatch, PredictBatch, has_rows
from . import callbacks as callback_rules
from . import checks, coupling, feeding, files, gather, hooks, limits, row_numbers, statistics, steps, sync


@contextlib.contextmanager
def core_errors() -> Iterator[None]:
    """Frameworks wrap what the core says into errors of their own: give back the core's."""
    try:
        yield
    except Error:
        raise
    except Exception:
        try:
            _runtime.check()
        except Error as cause:
            raise cause.with_traceback(None) from None
        raise


def _agree(call: str, lines: list[str]) -> None:
    cure = "pass the same to every rank, which takes its own rows"
    sync.agree(f"data or arguments of {call}", [*lines, *checks.settings()], cure)


def _start(model: Any, call: str, feeds: list[feeding.Feed], arguments: dict[str, Any]) -> list[Any]:
    """Makes sure that ranks agree on data and model, and gives them equal values. Collective."""
    lines = [line for feed in feeds for line in feed.describe()]
    lines += [f"{name}={value!r}" for name, value in arguments.items()]
    _agree(call, lines)
    sync.agree_on_seed()
    if any(feed.runs_python for feed in feeds):
        sync.agree_on_generators()
    batches = [feed.batches(positions=call == "predict") for feed in feeds]
    _equalize(model, batches[0].element_spec, {"fit": "train", "evaluate": "test", "predict": "predict"}[call])
    return batches


@contextlib.contextmanager
def _without_xla_if_need_be(model: Any, feeds: list[feeding.Feed]) -> Iterator[None]:
    """Makes uncompiled steps for a call with data of each rank's own, of which no step knows whether it is the last."""
    if not model.jit_compile or all(feed.distributed for feed in feeds):
        yield
        return
    _log.warn_once("jit_compile=True is switched off for data of each rank's own")
    functions = model.train_function, model.test_function  # which a call around this one may be running
    model.jit_compile = False
    model.train_function = model.test_function = None
    try:
        yield
    finally:
        model.jit_compile = True
        model.train_function, model.test_function = functions


def start(model: Any, lines: list[str], spec: Any) -> None:
    """Makes ranks equal before the first of many single batches of the type `spec`. Collective."""
    _agree("a batch", lines)
    _equalize(model, spec, "predict" if isinstance(spec, PredictBatch) else "train")
    _train_without_xla_if_need_be(model)
    limits.say(model)
    if not isinstance(spec, PredictBatch):
        coupling.say(model, hooks.inputs(spec.data))


def _equalize(model: Any, spec: Any, kind: str) -> None:
    build(model, spec, kind)
    sync.agree_on_variables(model, optimizers=kind == "train")
    statistics.average_if_apart(model)
    sync.broadcast(sync.variables(model, optimizers=kind == "train"))
    steps.install(model)
    checks.start(model)


def build(model: Any, spec: Any, kind: str) -> None:
    """Creates the variables that must be equal before the first step, or that a step must be able to undo.

    What losses and metrics keep is otherwise made in the first step, as in plain Keras.
    """
    undoes = not isinstance(spec, (MicroBatch, PredictBatch)) and not model.run_eagerly
    if not _has_weights(model) or (undoes and not steps.compiled_is_built(model)):
        _trace(model, spec.data, kind)
    optimizer = getattr(model, "optimizer", None)
    if kind == "train" and optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def _has_weights(model: Any) -> bool:
    layers = model._flatten_layers(include_self=False)
    return all(layer.built for layer in layers) and (model.built or bool(layers))


def _trace(model: Any, data: Any, kind: str) -> None:
    """Traces the step that will run; Keras's own training step makes no more than the cheaper one of evaluation."""
    step = hooks.original(model, f"{kind}_step")
    if kind == "train" and not limits.is_own(model, "train_step"):
        step = functools.partial(keras.Model.test_step, model)
    try:
        backend.trace(step, data)
    except Exception as error:
        # What the failed trace has made has no values, and nothing gives it any: then this is the error to show.
        if _has_weights(model) and all(map(backend.has_value, sync.variables(model))):
            return  # the step itself raises it again, or is run eagerly and need not be traced
        if any(leaf.shape.rank is None for leaf in tree.flatten(data) if has_rows(leaf)):
            raise ValueError(
                "the model is not built and the dataset does not say the shapes of its elements; give the model an "
                "Input, or the dataset shapes: dataset.map(…) with tf.ensure_shape"
            ) from error
        if model.run_eagerly:
            raise ValueError(
                "the model is not built, and only running it eagerly would build it; build it before on "
                "every rank: give it an Input, call model.build(…), or call it on one batch"
            ) from error
        raise


def check_compiled(model: Any, name: str) -> None:
    """Raises ValueError for a model that is not compiled."""
    if not getattr(model, "compiled", False):
        raise ValueError(f"compile the model before {name}: model.compile(optimizer=…, loss=…)")


def _train_without_xla_if_need_be(model: Any) -> None:
    """Makes an uncompiled training step where XLA cannot reduce gradients; evaluate and predict stay compiled."""
    if not model.jit_compile or model.train_function is not None:
        return
    layers = model._flatten_layers()
    sparse = [each.name for each in layers if isinstance(each, keras.layers.Embedding) and each.trainable_weights]
    if sparse:
        reason = f"the sparse gradients of {', '.join(sparse)} (Embedding)"
    elif not backend.can_compile():
        reason = "this version of TensorFlow"
    else:
        return
    _log.warn_once(f"jit_compile=True is switched off for training on several ranks: not possible with {reason}")
    model.jit_compile = False
    try:
        model.make_train_function(force=True)
    finally:
        model.jit_compile = True


def _verbose(verbose: Any) -> Any:
    return verbose if prints_output() else 0


def fit(
    model: Any,
    x: Any,
    y: Any,
    validation_data: Any,
    *,
    training: dict[str, Any],
    validation: dict[str, Any],
    validation_split: float,
    **options: Any,
) -> Any:
    """Distributed `keras.Model.fit`. `training` and `validation` are what `feeding.feed` takes beside the data."""
    check_compiled(model, "fit")
    if validation_split and validation_data is None:
        parts = (x, y, training.pop("sample_weight"))
        (x, y, training["sample_weight"]), validation_data = train_validation_split(parts, validation_split)
    feeds = [feeding.feed("training data", model, x, y, steps=options["steps_per_epoch"], **training)]
    if validation_data is not None:
        parts = keras.utils.unpack_x_y_sample_weight(validation_data)
        sizes = (validation["batch_size"], validation["micro_batch_size"])
        if sizes == (None, None) and arrays.can_distribute(parts):
            validation["batch_size"] = feeds[0].batch_size
        feeds.append(feeding.feed("validation data", model, *parts, steps=options["validation_steps"], **validation))
    shown = ("epochs", "initial_epoch", "steps_per_epoch", "validation_steps", "validation_freq")
    batches = _start(model, "fit", feeds, {name: options[name] for name in shown})
    options["verbose"] = _verbose(options["verbose"])
    options["callbacks"] = [checks.BeforeSteps(), *callback_rules.arrange(model, options["callbacks"])]
    limits.say(model)
    coupling.say(model, hooks.inputs(batches[0].element_spec.data))
    explained = row_numbers.explained(model, "train", feeds[0], batches[0].element_spec)
    with _without_xla_if_need_be(model, feeds), files.by_master(model), explained:
        _train_without_xla_if_need_be(model)
        history = model.fit(batches[0], validation_data=batches[1] if batches[1:] else None, shuffle=False, **options)
    # What the master's callbacks wrote is there when any rank goes on.
    _runtime.context().barrier()
    return history


def evaluate(
    model: Any, x: Any, y: Any, *, data: dict[str, Any], verbose: Any, steps: Any, callbacks: Any, return_dict: bool
) -> Any:
    """Distributed `keras.Model.evaluate`: the numbers of all rows, on every rank."""
    check_compiled(model, "evaluate")
    feed = feeding.feed("evaluation data", model, x, y, steps=steps, **data)
    (batches,) = _start(model, "evaluate", [feed], {"steps": steps})
    callbacks = callback_rules.arrange(model, callbacks)
    explained = row_numbers.explained(model, "test", feed, batches.element_spec)
    with _without_xla_if_need_be(model, [feed]), files.by_master(model), explained:
        return model.evaluate(
            batches, verbose=_verbose(verbose), steps=steps, callbacks=callbacks, return_dict=return_dict
        )


def predict(
    model: Any, x: Any, *, data: dict[str, Any], verbose: Any, steps: Any, callbacks: Any, everywhere: bool = True
) -> Any:
    """Distributed `keras.Model.predict`: all rows in the order of the data, on every rank or on the master."""
    feed = feeding.feed("data to predict", model, x, steps=steps, **data)
    if not feed.distributed:
        raise ValueError(
            "data of each rank's own (shard='file') cannot be put together in order; pass tnt_distribute_dataset=False "
            "and this rank alone predicts its own"
        )
    (batches,) = _start(model, "predict", [feed], {"steps": steps, "tnt_predict_all_devices": everywhere})
    callbacks = callback_rules.arrange_to_predict(callbacks)
    with files.by_master(model):
        outputs, positions = model.predict(batches, verbose=_verbose(verbose), steps=steps, callbacks=callbacks)
    return gather.in_order(outputs, positions, everywhere)
