"""Variables that are made outside of any trace, and those of TensorFlow in layers, which Keras does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ..fresh_thread import in_fresh_thread


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


def counter(length: int | None = None) -> tf.Variable:
    shape = [] if length is None else [length]
    return in_fresh_thread(lambda: tf.Variable(tf.zeros(shape, tf.int64), trainable=False))


def gradients(loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, [v.value for v in variables])
    return [None if g is None else tf.convert_to_tensor(g) for g in found]
