"""What runs eagerly, beside any graph that is traced."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager_context


def apart(function: Callable[[], Any]) -> Any:
    """Runs `function` eagerly, where neither a graph is traced nor a Keras layer is called: in a fresh thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


@contextlib.contextmanager
def quick_kernels() -> Iterator[None]:
    """Meanwhile TensorFlow wraps no function around an eager operation that runs for the first time.

    With oneDNN that costs milliseconds an operation: a pass over the function searches all registered kernels.
    """
    context = eager_context.context()
    switch = getattr(eager_context.pywrap_tfe, "TFE_ContextSetRunEagerOpAsFunction", lambda handle, on: None)
    context.ensure_initialized()
    switch(context._handle, False)
    try:
        yield
    finally:
        switch(context._handle, True)


def counter() -> tf.Variable:
    """A number that steps may add to; it is no part of any model. Made also while a step is traced again."""
    return apart(lambda: tf.Variable(0, dtype=tf.int64, trainable=False))


def gradients(loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
    """The gradients of what `loss` returns, None where it does not depend on a variable. Eager."""
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, [v.value for v in variables])
    return [None if g is None else tf.convert_to_tensor(g) for g in found]
