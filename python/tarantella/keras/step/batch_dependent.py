"""The parts of a model that look across the rows of a batch: layers, losses, metrics, `compute_loss`.

Layers that may do so are tried out (see `first_batch`). Losses and metrics get the rows of all ranks (see `gather`),
except those of Keras whose value for a row depends on no other row, and those that the user declares by `tnt_reduction`
to be a mean, or a sum, over rows.

A user-defined `compute_loss` sees the inputs, labels and predictions of the global batch. Inside it the losses
given to compile are plain, while those that layers add stay this rank's share. What it keeps from elsewhere, such as a
tensor that the model's call has left in an attribute, has this rank's rows. So it is tried out before the first step,
by a trace with the real numbers of rows; where that fails on a rank, none gathers.

BatchNormalization(synchronized=True): the moments are those of the global batch, gradients included.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras import layers, ops, tree

from ... import _exchange
from ..._backend import backend
from ..._job import log, runtime
from ...data.rows import rows_of_rank
from .. import hooks, model_state, private, replicas
from . import gather
from .step import current_step, name_of, tnt_reduction_of

# Those of Keras that treat rows alike.
REGULARIZERS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
# Layers whose arguments decide how they treat rows.
_BY_ARGUMENTS = (layers.Lambda, layers.EinsumDense, layers.TFSMLayer)
# Keras's own functions whose value for a row depends on other rows of the batch.
_ACROSS_ROWS = ("Circle", "circle", "Dice", "dice", "Tversky", "tversky")


def install(model: Any) -> None:
    """Hooks the model's own `compute_loss`, and the moments of synchronized BatchNormalization. Idempotent."""
    if has_own_loss(model):
        hooks.hook(model, "compute_loss", functools.partial(_loss_on_all_rows, model))
    for layer in synchronized(model):
        hooks.hook(layer, private.MOMENTS, functools.partial(_moments, layer))


def candidates(model: Any) -> list[int]:
    """The layers that may look across rows: those with user-defined code, or with an axis or function that may."""
    return [
        i
        for i, layer in enumerate(private.every_layer(model))
        if not all(_is_row_wise(part) for part in (layer, *getattr(layer, "operations", ())))
    ]


def by_design(model: Any) -> list[int]:
    """Keras's BatchNormalization and random layers, which are expected to differ on parts of a batch."""
    return [
        i
        for i, each in enumerate(private.every_layer(model))
        if private.is_of_keras(type(each)) and switchable(each) and _differs(each)
    ]


def _differs(layer: Any) -> bool:
    draws = any(isinstance(value, keras.random.SeedGenerator) for value in vars(layer).values())
    return draws or isinstance(layer, layers.BatchNormalization)


def _is_row_wise(part: Any) -> bool:
    if not isinstance(part, keras.Layer) or isinstance(part, _BY_ARGUMENTS) or not private.is_of_keras(type(part)):
        return False
    if not isinstance(part.activity_regularizer, (type(None), *REGULARIZERS)):
        return False
    if isinstance(part, keras.Model):  # user-defined losses and metrics are not part of its call
        return private.is_of_keras(part.call)
    axes = tree.flatten([getattr(part, name, 1) for name in ("axis", "axes")])
    return all(isinstance(axis, int) and (axis > 0 or axis == -1) for axis in axes) and all(
        private.is_of_keras(value) for value in vars(part).values() if callable(value)
    )


def switchable(layer: Any) -> bool:
    """Whether a layer has an inference mode."""
    return "training" in inspect.signature(layer.call).parameters


def as_in_inference(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a layer's `call` so that it runs in inference mode."""
    signature = inspect.signature(original)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.arguments["training"] = False
        return original(*given.args, **given.kwargs)

    return call


def needs_all_rows(owner: Any) -> bool:
    """Whether a loss or metric, or the function that one is made of, is to be computed on the global batch."""
    function = private.function_of(owner)
    kind: Any = type(owner) if isinstance(owner, (keras.losses.Loss, keras.metrics.Metric)) else owner
    parts = [kind] if function is None else [kind, function]
    return (
        tnt_reduction_of(owner) is None
        and not hasattr(owner, "tnt_combine")
        and (
            (function is None and isinstance(owner, keras.losses.Loss))
            or any(not private.is_of_keras(each) or each.__name__ in _ACROSS_ROWS for each in parts)
            or "call" in vars(owner)
            or private.options_of(owner).get("axis", -1) not in (-1, None)
        )
    )


def computed_on_all_rows(model: Any) -> list[str]:
    """The names of the losses and metrics given to compile that are computed on the global batch."""
    return [name_of(each) for each in private.given_to_compile(model) if needs_all_rows(each)]


def has_own_loss(model: Any) -> bool:
    """Whether the model's class has a `compute_loss` of its own, which `tnt_reduction` does not describe."""
    theirs = getattr(type(model), "compute_loss", keras.Model.compute_loss)
    return theirs is not keras.Model.compute_loss and tnt_reduction_of(model) is None


def loss_uses(model: Any) -> tuple[str, ...]:
    """The arguments of the model's own `compute_loss` that get the rows of all ranks: what `try_out_loss` has found."""
    known = model_state.get(model) if has_own_loss(model) else None
    tracker, uses = (None, ()) if known is None else known.compute_loss_uses
    return uses if tracker is not None and tracker is private.loss_tracker(model) else ()


def try_out_loss(model: Any, data: Any, rows: int | None) -> None:
    """Finds out whether the model's own `compute_loss` works with more rows than its call. Collective.

    `data` are the types of a batch, `rows` those of a global batch, None where they are not known.
    """
    found, tracker = model_state.of(model), private.loss_tracker(model)
    if not has_own_loss(model) or found.compute_loss_uses[0] is tracker:
        return
    uses: tuple[str, ...] = ()
    reason = ""
    try:
        uses = _traced(model, data, rows or 2 * runtime.get_size())
    except Exception as error:  # whatever user code raises
        text = str(error).splitlines()[0] if str(error) else ""
        reason = f"it fails on them ({type(error).__name__}: {text})"
    failed = [rank for rank, each in enumerate(_exchange.gather_json(reason)) if each]
    found.compute_loss_uses = tracker, () if failed else uses
    if failed:
        reason = reason or f"it fails on them on rank {failed[0]}"
        log.warn_once(
            f"compute_loss of {model.name} does not see the rows of all ranks: {reason}. Its result is taken for a "
            "mean over rows; declare tnt_reduction = 'mean' or 'sum' in the model's class"
        )


_ARGUMENTS = ("x", "y", "y_pred", "sample_weight")


def _traced(model: Any, data: Any, rows: int) -> tuple[str, ...]:
    """The arguments that it uses, traced for the real numbers of rows, which may not fit, and for unknown ones."""
    used: list[bool] = []
    function = hooks.original(model, "compute_loss")
    takes_training = "training" in inspect.signature(function).parameters

    def step(data: Any, rows: int | None) -> None:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        predicted, added = model(x, training=True), list(model.losses)
        whole = gather.map_with_masks(lambda leaf: backend.stand_in(leaf, rows), (y, predicted, sample_weight))
        inputs = gather.map_with_masks(lambda leaf: backend.stand_in(leaf, None), x)
        for trains in (True, False):
            options = {"training": trains} if takes_training else {}
            loss = function(x=inputs, y=whole[0], y_pred=whole[1], sample_weight=whole[2], **options)
            if backend.comes_from_inputs(loss, but=[*added, *model.losses]):
                raise ValueError("it uses a tensor that the model's call has kept, which has this rank's rows")
        used.extend(backend.is_used(each) for each in tree.flatten(inputs) if each is not None)

    local = max(1, rows_of_rank(rows, runtime.get_rank(), runtime.get_size())[1])
    for own, whole in ((local, rows), (None, None)):
        backend.trace(functools.partial(step, rows=whole), data, rows=own)
    return _ARGUMENTS if any(used) else _ARGUMENTS[1:]


def _loss_on_all_rows(model: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original).parameters.values()
    theirs = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    order = [*theirs, *_ARGUMENTS[len(theirs) :]]  # what follows goes into *args

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        step, uses = current_step(), loss_uses(model)
        if step is None or not uses or step.has_all_rows:
            return original(*args, **kwargs)
        given = dict(zip(order, args, strict=False)) | kwargs
        own = {name: given[name] for name in uses if name in given}
        rows = gather.of_all_ranks(step, f"compute_loss of {model.name}", own)
        if rows is None:
            return original(*args, **kwargs)
        given |= rows.structure
        with step.on_all_rows():
            places = [given.pop(name) for name, _ in zip(order, args, strict=False)]
            return original(*places, *args[len(order) :], **given)

    return compute_loss


def synchronized(model: Any) -> list[Any]:
    """The BatchNormalization layers that normalize by the global batch."""
    return [layer for layer in replicas.normalizations(model) if layer.synchronized]


def _moments(layer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def moments(inputs: Any, mask: Any = None) -> Any:
        step = current_step()
        if step is None:
            return original(inputs, mask)
        # For masked inputs, Keras divides by the count plus epsilon. Multiplying by the same gives back its sums.
        little = 0.0 if mask is None else keras.config.epsilon()
        local = original(inputs, mask)
        mean, variance = (ops.reshape(ops.cast(moment, "float64"), (-1,)) for moment in local)
        channels = int(mean.shape[0])
        size = ops.size(inputs) / channels if mask is None else ops.sum(ops.cast(mask, "float64"))
        count = ops.reshape(ops.cast(size, "float64"), (1,))
        total = mean * (count + little)
        squares = variance * (count + little) + 2 * mean * total - mean * mean * count
        parts = step.zero_if_empty(ops.concatenate([count, total, squares]))
        what = f"moments {step.call_index(layer)} of {layer.name!r}"
        parts = backend.sum_over_ranks(layer, what, parts, differentiable=True)
        count, total, squares = ops.split(parts, [1, 1 + channels])
        mean = total / (count + little)
        variance = (squares - 2 * mean * total + mean * mean * count) / (count + little)
        whole = (mean, ops.maximum(variance, 0.0))
        return tuple(ops.reshape(ops.cast(new, old.dtype), old.shape) for new, old in zip(whole, local, strict=True))

    return moments
