"""Calls are taken over where Keras's own method begins, for the model that the user has wrapped; the hooks of models.

A class's own `fit`, `evaluate` and so on run as written, with the user's data. Calls on other models, on sub-models of
the wrapped one, and from callbacks run on this rank alone.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
from keras import tree

from .._job import log, runtime, timeline
from .._job.errors import Error
from ..data import tf_data
from ..data.adapter import ShardedAdapter
from ..data.input import uses_pipelines
from ..data.rows import MicroBatch, PaddedMicroBatch, has_rows
from . import epoch_end, hooks, limitations, model_state, private
from .step import batch_dependent, gradients, losses, metrics, run

METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
# What runs in the place of a method: `replacement(model, method of Keras, arguments, our own options)`.
Replacement = Callable[[Any, Callable[..., Any], dict[str, Any], dict[str, Any]], Any]


class _UserCall(NamedTuple):
    """The call of a method of a wrapped model by the user."""

    model: Any
    options: dict[str, dict[str, Any]]  # those of ours, by method
    begun: list[str]  # the methods of Keras's that have been taken over in it


# Where a method of Keras's that begins now is taken over; None within one.
_current: contextvars.ContextVar[_UserCall | None] = contextvars.ContextVar("tarantella_call", default=None)
# By method.
REPLACEMENTS: dict[str, Replacement] = {}


def hook_methods(replacements: dict[str, Replacement]) -> None:
    """Hooks the methods in the class of Keras that defines them. Idempotent."""
    for name, each in replacements.items():
        REPLACEMENTS.setdefault(name, each)
        owner = next(kind for kind in keras.Model.__mro__ if name in vars(kind))
        hooks.hook(owner, name, functools.partial(_method, name))


def call(model: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> Any:
    """Calls `model.<name>` with the user's arguments.

    Where Keras's own method begins, the function in `REPLACEMENTS` runs in its place and gets `options`.
    """
    if runtime.get_size() > 1:
        check_strategy(model)
    begun: list[str] = []
    with _calling(_UserCall(model, {name: options}, begun)):
        result = getattr(model, name)(*args, **kwargs)
    if not begun and runtime.get_size() > 1:
        kind = type(model)
        log.warn_once(
            f"{name} of {kind.__module__}.{kind.__qualname__} did not call Keras's own {name}: every rank has run it "
            f"alone, on all data; call super().{name}(…) to let the ranks share the work"
        )
    return result


def check_strategy(model: Any) -> None:
    """Raises ValueError where the framework would train the model on several devices by itself."""
    strategy = getattr(model, "distribute_strategy", None) or keras.distribution.distribution()
    if strategy is not None and not type(strategy).__name__.startswith("_Default"):  # TensorFlow's where none is set
        raise ValueError(
            "tarantella.Model trains on several ranks without tf.distribute: remove the "
            f"{type(strategy).__name__} and its scope, in which the model was made or this call is "
            "(docs/from_mirrored_strategy.md)"
        )


@contextlib.contextmanager
def _calling(call: _UserCall | None) -> Iterator[None]:
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


def _core_error() -> Error | None:
    """The error that has ended this job's communication, if there is one."""
    try:
        runtime.check()
    except Error as error:
        return error
    return None


@contextlib.contextmanager
def _core_errors() -> Iterator[None]:
    """Frameworks wrap what the core says into errors of their own: give back the core's, if it is of this call."""
    before = _core_error()
    try:
        yield
    except Error:
        raise
    except Exception as error:
        cause = _core_error()
        if cause is None or (before is not None and str(cause) not in str(error)):
            raise
        raise cause.with_traceback(None) from None


def _method(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def method(model: Any, *args: Any, **kwargs: Any) -> Any:
        called = _current.get()
        if called is None or called.model is not model:
            return _run_keras_method(model, name, original, args, kwargs)
        given = signature.bind(model, *args, **kwargs)
        given.apply_defaults()
        arguments = dict(given.arguments)
        arguments |= arguments.pop("kwargs", {})
        del arguments["self"]
        called.begun.append(name)
        of_keras, ours = functools.partial(original, model), called.options.get(name, {})
        with _calling(None), timeline.span(name, timeline.CALL), _core_errors():
            return REPLACEMENTS[name](model, of_keras, arguments, ours)

    return method


def _run_keras_method(model: Any, name: str, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Runs Keras's method on this rank; with our batches it is an evaluation within a fit, in which ranks combine."""
    if model_state.get(model) is None or name.startswith("predict"):
        return original(model, *args, **kwargs)
    x = args[0] if args else kwargs.get("x")
    with model_state.during(model, model_state.Call(trains=False) if isinstance(x, ShardedAdapter) else None):
        return original(model, *args, **kwargs)


def hook_model(model: Any) -> None:
    """Hooks the steps, the losses' trackers, the optimizers and the metrics of a Keras model. Idempotent."""
    if not hooks.are_keras_own(model, "evaluate"):  # within a fit it gets the user's validation data, not our batches
        hooks.hook(model, "evaluate", functools.partial(_evaluate, model))
    gradients.install()
    run.install(model)
    batch_dependent.install(model)
    losses.install_added(model)
    _install_compiled(model)
    for compiled in private.compiled_parts(model):
        hooks.hook(compiled, "build", functools.partial(_build, model))
    for each in private.optimizers(model):
        gradients.hook_optimizer(each)
    hook_for_timeline(model)  # last: around the functions that the hooks before have made


def _install_compiled(model: Any) -> None:
    metrics.note_sources(model)
    for part in (epoch_end, metrics, losses):
        part.install(model)


def _build(model: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """The hook of the `build` of the compiled losses or metrics. Keras may call it during the first step."""

    def build(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        _install_compiled(model)
        limitations.warn_of_metrics(model)
        return result

    return build


def _evaluate(model: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(*args: Any, **kwargs: Any) -> Any:
        found = model_state.of(model).validation
        if found is None or kwargs.get("x") is not found.batches:
            return original(*args, **kwargs)
        data = found.given
        ours = {"distribute": data.distributed, "micro_batch_size": data.micro_batch_size, "validates": True}
        theirs = {"x": data.x, "y": data.y, "sample_weight": data.sample_weight, "batch_size": data.batch_size}
        with _calling(_UserCall(model, {"evaluate": ours}, [])):
            return original(*args, **{**kwargs, **theirs})

    return evaluate


def validation_batches(model: Any, given: dict[str, Any]) -> ShardedAdapter | None:
    """The validation batches of the fit around, where it asks Keras's `evaluate` for its cached data.

    Removes the data from the arguments then.
    """
    known = model_state.get(model)  # None on one rank
    if not given.pop("_use_cached_eval_dataset", False) or known is None or known.validation is None:
        return None
    for name in ("x", "y", "sample_weight", "batch_size"):
        del given[name]
    batches: ShardedAdapter = known.validation.batches
    return batches


def hook_for_timeline(model: Any) -> None:
    """Records the steps of a Keras model, and the batches of its training. Idempotent."""
    if not timeline.is_on():
        return
    if uses_pipelines() and hooks.hook(model, "train_step", _marked, "timeline"):
        model.train_function = None
    for kind in ("train", "test", "predict"):
        if hooks.hook_functions(model, kind, functools.partial(timeline.step, f"{kind} step"), "timeline"):
            setattr(model, f"{kind}_function", None)


def _marked(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def train_step(batch: Any) -> Any:
        return original(tf_data.slicer.mark_arrival(batch, _rows(batch)))

    return train_step


def _rows(batch: Any) -> Any:
    """This rank's rows of a batch; 0 where nothing tells them."""
    if isinstance(batch, (MicroBatch, PaddedMicroBatch, tf_data.per_rank.PerRankBatch)):
        return batch.rows
    leaves = [leaf for leaf in tree.flatten(batch) if has_rows(leaf)]
    return tf_data.slicer.rows_of(leaves[0]) if leaves else 0
