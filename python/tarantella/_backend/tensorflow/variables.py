"""The framework's own variables that layers hold, which Keras does not know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf


def variables_outside(layers: Sequence[Any]) -> list[tf.Variable]:
    found: dict[int, tf.Variable] = {}
    for layer in layers:
        for leaf in _leaves(list(vars(layer).values())):
            if isinstance(leaf, tf.Module):
                found.update((id(each), each) for each in leaf.variables)
            elif isinstance(leaf, tf.Variable | tf.random.Generator):
                variable = getattr(leaf, "state", leaf)
                found[id(variable)] = variable
    return list(found.values())


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value
