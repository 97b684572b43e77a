"""Running a model beside training: by a trace of its own, with the variables as before afterwards."""

from __future__ import annotations

import contextvars
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree

from .dispatch import none_if_optional
from .undo import assigned

# By the names that Keras and TensorFlow give to the state of a generator of random numbers.
_GENERATORS = ("seed_generator_state", "StateVar")
# Functions of the user's that are called in the trace are traced for it alone: nobody else may use what hooks change.
_trace: contextvars.ContextVar[object | None] = contextvars.ContextVar("tarantella_beside", default=None)


def traced_beside() -> object | None:
    """What the functions that are traced now belong to; None outside of a `Beside`."""
    return _trace.get()


class Beside:
    """A function of tensors as a graph, made at once. Raises what the function raises."""

    def __init__(self, function: Callable[[Any], Any], data: Any) -> None:
        """`data` are what the function will be called with first; the numbers of rows (axis 0) may be others later."""
        token = _trace.set(object())
        try:
            made = tf.function(function, autograph=False)
            self._function = made.get_concrete_function(tree.map_structure(_with_any_rows, data))
        finally:
            _trace.reset(token)
        handles = assigned(self._function.graph)
        found = [v for v in self._function.graph.variables if id(v.handle) in handles]
        self._before = [(v, v.read_value()) for v in found]

    def __call__(self, data: Any, draws_on: bool = False) -> Any:
        """Runs it. Variables are as before, with `draws_on` except those of generators of random numbers."""
        try:
            return tree.map_structure(lambda leaf: leaf.numpy(), self._function(data))
        finally:
            for variable, value in self._before:
                if not (draws_on and variable.name.rpartition("/")[2].startswith(_GENERATORS)):
                    variable.assign(value)


def beside(function: Callable[[Any], Any], data: Any) -> Beside:
    return Beside(function, data)


def _with_any_rows(leaf: Any) -> Any:
    if leaf is None or len(leaf.shape) == 0:
        return leaf if leaf is None else tf.type_spec_from_value(leaf)
    shape = [None, *leaf.shape[1:]]
    if isinstance(leaf, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, leaf.dtype, leaf.ragged_rank, leaf.row_splits.dtype)
    return (tf.SparseTensorSpec if isinstance(leaf, tf.SparseTensor) else tf.TensorSpec)(shape, leaf.dtype)


def rows(data: Any, start: int, stop: int, total: int) -> Any:
    def cut(leaf: Any) -> Any:
        if leaf is None or len(leaf.shape) == 0:
            return leaf
        times = leaf.shape[0] // total  # several parts of a batch may have several rows for each row
        if isinstance(leaf, tf.SparseTensor):
            first, size = np.zeros(len(leaf.shape), np.int64), leaf.dense_shape.numpy()
            first[0], size[0] = start * times, (stop - start) * times
            return tf.sparse.slice(leaf, first, size)
        return leaf[start * times : stop * times]

    return tree.map_structure(cut, data)


def look_ahead(iterator: Iterator[Any], count: int) -> tuple[Any, Iterator[Any]]:
    taken: Sequence[Any] = list(itertools.islice(iterator, count))
    first = tree.map_structure(none_if_optional, taken[0]) if taken else None
    if not taken or not isinstance(iterator, tf.data.Iterator):
        return first, iter(taken)
    again = functools.reduce(lambda one, other: one.concatenate(other), map(tf.data.Dataset.from_tensors, taken))
    variant = tf.data.experimental.to_variant(again)
    return first, iter(tf.data.experimental.from_variant(variant, iterator.element_spec))
