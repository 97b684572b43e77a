"""How the losses that layers add combine: those of add_loss and of activity regularizers.

Every loss is weighted by rows. This is right for means over rows, and for regularizers of weights, which do not depend
on rows. An added sum gets a further factor.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any

from keras import ops, tree

from ..._job import log
from .. import hooks, private, training
from ..trials import reduction
from .step import Step, current_step

# While a model is tried out: what its layers have added.
_seen: contextvars.ContextVar[dict[Any, Any] | None] = contextvars.ContextVar("tarantella_added", default=None)


def install(model: Any) -> None:
    """Hooks `add_loss` and the regularizers of a model's layers. Idempotent."""
    for layer in private.every_layer(model):
        hooks.hook(layer, "add_loss", functools.partial(_add_loss, layer))
        hooks.hook(layer, private.REGULARIZATION_LOSSES, _regularizers)


def _regularizers(original: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    def regularization_losses() -> list[Any]:
        step = current_step()
        return original() if step is None else [step.weighed(each) for each in original()]

    return regularization_losses


def _add_loss(layer: Any, original: Callable[[Any], None]) -> Callable[[Any], None]:
    def add_loss(loss: Any) -> None:
        seen, step = _seen.get(), current_step()
        if seen is not None:
            for each in tree.flatten(loss):
                seen[layer, sum(other is layer for other, _ in seen)] = each
        elif step is not None:
            original([_scaled(step, layer, each) for each in tree.flatten(loss)])
        else:
            original(loss)

    return add_loss


def _scaled(step: Step, layer: Any, loss: Any) -> Any:
    number = step.number(layer)
    if number not in _sums(step, layer):
        _try_out(step)
    if number not in _sums(step, layer):
        _decide(step, layer, number, reduction.UNKNOWN)
    return step.weighed(loss, 1.0 if _sums(step, layer)[number] else None)


def _sums(step: Step, layer: Any) -> dict[int, bool]:
    """Whether the losses that a layer of the step's model adds are sums, by their order in a step."""
    return training.of(step.model).added_sums.setdefault(layer, {})


def _try_out(step: Step) -> None:
    """Decides about all losses that the step's model adds: as it predicts, then those that it adds in training."""
    for trains in (False, True):

        def evaluate(rows: slice, trains: bool = trains) -> dict[Any, Any]:
            seen: dict[Any, Any] = {}
            token = _seen.set(seen)
            try:
                step.model(tree.map_structure(lambda leaf: _rows(leaf, rows), step.inputs), training=trains)
            finally:
                _seen.reset(token)
            return seen

        for (layer, number), verdict in reduction.try_out(evaluate).items():
            if number not in _sums(step, layer):
                _decide(step, layer, number, verdict)


def _rows(leaf: Any, rows: slice) -> Any:
    return None if leaf is None else ops.convert_to_tensor(reduction.batch_like(leaf)[rows])


def _decide(step: Step, layer: Any, number: int, verdict: reduction.Verdict) -> None:
    _sums(step, layer)[number] = verdict.is_sum
    what = f"a loss that the layer {layer.name!r} adds"
    if verdict.certainty is reduction.Certainty.COUPLED:
        log.warn_once(
            f"{what} depends on which rows share a batch, or on random numbers: each rank sees its own rows alone, so "
            "training differs from one process's"
        )
    elif verdict.certainty is reduction.Certainty.UNKNOWN:
        log.warn_once(
            f"whether {what} is a mean or a sum over rows could not be found out, it is taken for a mean; "
            "divide a sum by the number of rows to be sure"
        )
