"""A sandbox: runs a model outside of training, and gives the variables their values of before."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from keras import tree

from ..steps import in_fresh_thread
from .plans import zero_variable
from .steps import assigned, cut_rows, sandbox_trace_key, type_of

# By the names that Keras and TensorFlow give to the state of a generator of random numbers.
_GENERATORS = ("seed_generator_state", "StateVar")
# See `Backend.sandboxed`.
_MODES = ("pass", "record", "replay")
# What is traced or run now.
_current: contextvars.ContextVar[Sandbox | None] = contextvars.ContextVar("tarantella_sandbox", default=None)


def recorded_or_replayed(tensor: Any) -> Any:
    sandbox = _current.get()
    return tensor if sandbox is None else sandbox.recorded_or_replayed(tf.convert_to_tensor(tensor))


class Sandbox:
    """See `Backend.sandboxed`."""

    def __init__(
        self, function: Callable[[Any], Any], data: Any = None, variables: Sequence[Any] | None = None
    ) -> None:
        self._variables = list(variables or ())
        self._trace_key = object()  # users' functions keep it for ever
        self._before: list[tuple[Any, tf.Tensor]] = []  # the values before a run that has left some as they are
        self._mode, self._recorded, self._calls = zero_variable(), list[tf.Variable](), 0
        if variables is not None:
            self._function = function
        else:
            with self._as_current():
                made = tf.function(function, autograph=False)
                traced = made.get_concrete_function(tree.map_structure(type_of, data))
            handles = assigned(traced.graph) - {id(v.handle) for v in self._recorded}
            self._function, self._variables = traced, [v for v in traced.graph.variables if id(v.handle) in handles]

    @contextlib.contextmanager
    def _as_current(self) -> Iterator[None]:
        current, key = _current.set(self), sandbox_trace_key.set(self._trace_key)
        try:
            yield
        finally:
            _current.reset(current)
            sandbox_trace_key.reset(key)

    def __call__(self, data: Any, draws_on: bool = False, rows: str = "pass") -> Any:
        self._mode.assign(_MODES.index(rows))
        self._calls = 0
        before = self._before or [(v, tf.identity(tf.convert_to_tensor(v))) for v in self._variables]
        self._before = before if draws_on else []
        try:
            with self._as_current():
                return tree.map_structure(lambda leaf: leaf.numpy(), self._function(data))
        finally:
            for variable, value in before:
                if not (draws_on and variable.name.rpartition("/")[2].startswith(_GENERATORS)):
                    variable.assign(value)

    def recorded_or_replayed(self, tensor: tf.Tensor) -> tf.Tensor:
        if self._calls == len(self._recorded):
            if tf.executing_eagerly() and self._mode.numpy() == _MODES.index("replay"):
                raise IndexError("the model gathers rows more often for a part of the batch than for the whole")
            empty, unknown = tf.TensorShape([0] * tensor.shape.rank), tf.TensorShape([None] * tensor.shape.rank)
            self._recorded.append(
                in_fresh_thread(lambda: tf.Variable(tf.zeros(empty, tensor.dtype), trainable=False, shape=unknown))
            )
        recorded = self._recorded[self._calls]
        self._calls += 1

        def record() -> tf.Tensor:
            with tf.control_dependencies([recorded.assign(tensor)]):
                return tf.identity(tensor)

        found = tf.switch_case(tf.cast(self._mode, tf.int32), [lambda: tensor, record, recorded.read_value])
        found.set_shape([None, *tensor.shape[1:]])
        return found


def rows(data: Any, ranges: Sequence[tuple[int, int]], total: int) -> Any:
    def cut(leaf: Any) -> Any:
        if leaf is None or len(leaf.shape) == 0:
            return leaf
        times = leaf.shape[0] // total  # several parts of a batch may have several rows for each row
        parts = [cut_rows(leaf, start * times, (stop - start) * times) for start, stop in ranges]
        return tf.sparse.concat(0, parts) if isinstance(leaf, tf.SparseTensor) else tf.concat(parts, 0)

    return tree.map_structure(cut, data)


def peek(iterator: Iterator[Any], count: int) -> tuple[Any, Iterator[Any]]:
    try:
        first = next(iterator)
    except StopIteration:
        return None, iterator
    seen = tree.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, first)
    if not isinstance(iterator, tf.data.Iterator):
        return seen, itertools.chain([first], iterator)
    again = tf.data.Dataset.from_tensors(first)
    if count > 1:
        again = again.concatenate(_next_of(iterator, count - 1))
    variant = tf.data.experimental.to_variant(again)
    return seen, iter(tf.data.experimental.from_variant(variant, iterator.element_spec))


def _next_of(iterator: Any, count: int) -> tf.data.Dataset:
    """The next batches of an iterator, as they are asked for."""
    plain = tf.autograph.experimental.do_not_convert
    following = tf.data.Dataset.range(count).map(plain(lambda _: iterator.get_next_as_optional()))
    return following.take_while(plain(lambda each: each.has_value())).map(plain(lambda each: each.get_value()))
