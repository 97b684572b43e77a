"""What several ranks cannot do as one process does: said once, by name."""

from __future__ import annotations

from typing import Any

import keras

from .. import _log


def say(model: Any) -> None:
    """Logs which parts of a model make training differ from one process's."""
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]
    normalized = [layer.name for layer in layers if layer.trainable and not layer.synchronized]
    if normalized:
        _log.warn_once(
            f"{_list(normalized)} (BatchNormalization): each rank normalizes its own rows, so training differs "
            "from one process's; moving statistics are averaged over the ranks after every epoch; synchronized=True "
            "normalizes all rows together"
        )
    every = [each for metric in model.metrics for each in getattr(metric, "metrics", [metric])]
    own = [metric.name for metric in every if not type(metric).__module__.startswith("keras.")]
    if own:
        _log.warn_once(
            f"{_list(own)} (own metrics): the states of the ranks are summed, which is right for counts and totals "
            "but not for maxima or means"
        )
    if any(v.name == "seed_generator_state" for v in model.variables):
        _log.logger.info("random layers draw from a stream of their own on each rank, reproducible from the seed")


def _list(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
