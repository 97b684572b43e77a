"""Runs a step's graph with less of Python around it.

For every step Keras has TensorFlow compare the whole type of the iterator with those it has traced, and takes the
result out of an Optional. In a small network that is a tenth of the time. Here the graph takes the handle of the
iterator, whose type is looked at once an epoch.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import tree

from .operations import operations

# Types of iterators that get a graph of their own; Keras's function finds one for all others.
_MOST = 2

# Up to 3.15 Keras takes the batch in the step's graph, as is done here. What does not depend on the batch runs there
# even where the data has ended: an optimizer counts one step more. From 3.16 on Keras takes it before; so must it be.
TAKES_BATCHES_IN_GRAPH = tuple(int(part) for part in keras.__version__.split(".")[:2]) < (3, 16)


class Dispatch:
    """In the place of a `train_function` or `test_function` of Keras that runs one step a call."""

    def __init__(
        self, step: Callable[[Any], Any], jit_compile: bool, awaits: bool, otherwise: Callable[[Any], Any]
    ) -> None:
        """`step` takes a batch and gives logs; `otherwise` is Keras's own function, for what is no tf.data.Iterator.

        With `awaits` the timeline shows since when a step awaits its batch.
        """
        self._awaits = awaits
        self._step = tf.function(step, autograph=False, reduce_retracing=True, jit_compile=jit_compile)
        self._otherwise = otherwise
        # By type of iterator, and by iterator.
        self._traced: dict[Any, Any] = {}
        self._bound: weakref.WeakKeyDictionary[Any, Callable[[], Any] | None] = weakref.WeakKeyDictionary()

    def __call__(self, iterator: Any) -> Any:
        """The logs of the next step. Raises tf.errors.OutOfRangeError where the data end."""
        if not isinstance(iterator, tf.data.Iterator):
            return self._otherwise(iterator)
        if iterator not in self._bound:
            self._bound[iterator] = self._bind(iterator)
        run = self._bound[iterator]
        return self._otherwise(iterator) if run is None else run()

    def _bind(self, iterator: Any) -> Callable[[], Any] | None:
        spec = tf.type_spec_from_value(iterator)
        if spec not in self._traced:
            if len(self._traced) == _MOST:
                return None
            self._traced[spec] = tf.function(self._next(spec), autograph=False)
        (handle,) = tf.nest.flatten(iterator, expand_composites=True)
        return functools.partial(self._traced[spec], handle)

    def _next(self, spec: Any) -> Callable[[Any], Any]:
        def run(handle: Any) -> Any:
            with tf.control_dependencies([operations().tarantella_await_batch()] if self._awaits else []):
                batch = next(tf.nest.pack_sequence_as(spec, [handle], expand_composites=True))
            return self._step(tree.map_structure(none_if_optional, batch))

        return run


def none_if_optional(leaf: Any) -> Any:
    return None if isinstance(leaf, tf.experimental.Optional) else leaf


def step_function(model: Any, kind: str, awaits: bool, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """It is Keras's where Keras does more than run the step, or where the model's class makes its own."""
    make = f"make_{kind}_function"
    own = getattr(type(model), make) is not getattr(keras.Model, make)
    several = model.steps_per_execution != 1 or model.distribute_strategy.num_replicas_in_sync > 1
    if own or several or model.run_eagerly or not TAKES_BATCHES_IN_GRAPH:
        return function
    return Dispatch(getattr(model, f"{kind}_step"), bool(model.jit_compile), awaits and not model.jit_compile, function)
