"""What runs eagerly, beside any graph that is traced."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def apart(function: Callable[[], Any]) -> Any:
    with concurrent.futures.ThreadPoolExecutor(1) as thread:  # graphs and calls of layers are known for each thread
        return thread.submit(function).result()


def counter(length: int | None = None) -> tf.Variable:
    shape = [] if length is None else [length]
    return apart(lambda: tf.Variable(tf.zeros(shape, tf.int64), trainable=False))


def gradients(loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, [v.value for v in variables])
    return [None if g is None else tf.convert_to_tensor(g) for g in found]
