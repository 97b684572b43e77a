"""What runs eagerly, beside any graph that is traced."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager_context


def apart(function: Callable[[], Any]) -> Any:
    with concurrent.futures.ThreadPoolExecutor(1) as thread:  # graphs and calls of layers are known for each thread
        return thread.submit(function).result()


@contextlib.contextmanager
def quick_kernels() -> Iterator[None]:
    """Meanwhile TensorFlow wraps no function around an eager operation that runs for the first time.

    With oneDNN that costs milliseconds an operation: a pass over the function searches all registered kernels.
    """
    try:
        context = eager_context.context()
        context.ensure_initialized()
        switch, handle = eager_context.pywrap_tfe.TFE_ContextSetRunEagerOpAsFunction, context._handle
    except AttributeError:  # a TensorFlow without these private names: slower
        yield
        return
    switch(handle, False)
    try:
        yield
    finally:
        switch(handle, True)


def counter(length: int | None = None) -> tf.Variable:
    shape = [] if length is None else [length]
    return apart(lambda: tf.Variable(tf.zeros(shape, tf.int64), trainable=False))


def gradients(loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, [v.value for v in variables])
    return [None if g is None else tf.convert_to_tensor(g) for g in found]
