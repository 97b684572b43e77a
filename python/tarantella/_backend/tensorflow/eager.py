"""What runs eagerly, beside any graph that is traced."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def apart(function: Callable[[], Any]) -> Any:
    """Runs `function` eagerly, where neither a graph is traced nor a Keras layer is called: in a fresh thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def counter() -> tf.Variable:
    """A number that steps may add to; it is no part of any model. Made also while a step is traced again."""
    return apart(lambda: tf.Variable(0, dtype=tf.int64, trainable=False))


def gradients(loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
    """The gradients of what `loss` returns, None where it does not depend on a variable. Eager."""
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, [v.value for v in variables])
    return [None if g is None else tf.convert_to_tensor(g) for g in found]
