"""Which hooks a Keras model gets: the one list of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import limitations, private
from ..epoch import end
from ..hooks import hook
from ..step import compute_loss, gradients, losses, metrics, normalization, run
from . import recorded, takeover


def install(model: Any) -> None:
    """Hooks the steps, the losses' trackers, the optimizers and the metrics of a Keras model. Idempotent."""
    takeover.hook_validation(model)
    gradients.install()
    for part in (run, compute_loss, normalization):
        part.install(model)
    losses.install_added(model)
    _install_compiled(model)
    for compiled in private.compiled_parts(model):
        hook(compiled, "build", functools.partial(_build, model))
    for each in private.optimizers(model):
        gradients.hook_optimizer(each)
    recorded.install(model)  # last: around the functions that the hooks before have made


def _install_compiled(model: Any) -> None:
    metrics.note_sources(model)
    for part in (end, metrics, losses):
        part.install(model)


def _build(model: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """The hook of the `build` of the compiled losses or metrics. Keras may call it during the first step."""

    def build(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        _install_compiled(model)
        limitations.say_of_metrics(model)
        return result

    return build
