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
from .plans import counter
from .steps import assigned, type_of

# By the names that Keras and TensorFlow give to the state of a generator of random numbers.
_GENERATORS = ("seed_generator_state", "StateVar")
# See `Sandboxed.__call__`.
_MODES = ("pass", "record", "replay")
# What is traced or run now. Functions of the user's that are called in it are traced for it alone.
_current: contextvars.ContextVar[_Sandbox | None] = contextvars.ContextVar("tarantella_sandbox", default=None)


def current_sandbox() -> object | None:
    """The sandbox for which something is traced or run now; None if nothing is."""
    return _current.get()


def recorded_or_replayed(tensor: Any) -> Any:
    sandbox = _current.get()
    return tensor if sandbox is None else sandbox.recorded_or_replayed(tf.convert_to_tensor(tensor))


def sandboxed(function: Callable[[Any], Any], data: Any = None, variables: Sequence[Any] | None = None) -> _Sandbox:
    return _Traced(function, data) if variables is None else _Eager(function, variables)


class _Sandbox:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._variables: list[Any] = []
        self._before: list[tuple[Any, tf.Tensor]] = []  # the values before a run that has left some as they are

    def recorded_or_replayed(self, tensor: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError

    def _set_mode(self, mode: str) -> None:
        raise NotImplementedError

    @contextlib.contextmanager
    def _as_current(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def __call__(self, data: Any, draws_on: bool = False, rows: str = "pass") -> Any:
        self._set_mode(rows)
        before = self._before or [(v, tf.identity(tf.convert_to_tensor(v))) for v in self._variables]
        self._before = before if draws_on else []
        try:
            with self._as_current():
                return tree.map_structure(lambda leaf: leaf.numpy(), self._function(data))
        finally:
            for variable, value in before:
                if not (draws_on and variable.name.rpartition("/")[2].startswith(_GENERATORS)):
                    variable.assign(value)


class _Traced(_Sandbox):
    def __init__(self, function: Callable[[Any], Any], data: Any) -> None:
        self._mode, self._recorded = counter(), list[tf.Variable]()
        with self._as_current():
            made = tf.function(function, autograph=False)
            traced = made.get_concrete_function(tree.map_structure(_type_of, data))
        super().__init__(traced)
        handles = assigned(traced.graph) - {id(v.handle) for v in self._recorded}
        self._variables = [v for v in traced.graph.variables if id(v.handle) in handles]

    def recorded_or_replayed(self, tensor: tf.Tensor) -> tf.Tensor:
        shape = [None, *tensor.shape[1:]]
        empty = [0, *(n or 0 for n in shape[1:])]
        recorded = in_fresh_thread(lambda: tf.Variable(tf.zeros(empty, tensor.dtype), trainable=False, shape=shape))
        self._recorded.append(recorded)

        def record() -> tf.Tensor:
            with tf.control_dependencies([recorded.assign(tensor)]):
                return tf.identity(tensor)

        return tf.switch_case(tf.cast(self._mode, tf.int32), [lambda: tensor, record, recorded.read_value])

    def _set_mode(self, mode: str) -> None:
        self._mode.assign(_MODES.index(mode))


class _Eager(_Sandbox):
    def __init__(self, function: Callable[[Any], Any], variables: Sequence[Any]) -> None:
        super().__init__(function)
        self._variables, self._mode, self._turn = list(variables), "pass", 0
        self._recorded: list[tf.Tensor] = []

    def recorded_or_replayed(self, tensor: tf.Tensor) -> tf.Tensor:
        self._turn += 1
        if self._mode == "record":
            self._recorded.append(tensor)
        return self._recorded[self._turn - 1] if self._mode == "replay" else tensor

    def _set_mode(self, mode: str) -> None:
        self._mode, self._turn = mode, 0
        if mode == "record":
            self._recorded = []


def _type_of(leaf: Any) -> Any:
    return None if leaf is None else type_of(leaf)


def rows(data: Any, ranges: Sequence[tuple[int, int]], total: int) -> Any:
    def cut(leaf: Any) -> Any:
        if leaf is None or len(leaf.shape) == 0:
            return leaf
        times = leaf.shape[0] // total  # several parts of a batch may have several rows for each row
        parts = [_between(leaf, start * times, stop * times) for start, stop in ranges]
        return tf.sparse.concat(0, parts) if isinstance(leaf, tf.SparseTensor) else tf.concat(parts, 0)

    return tree.map_structure(cut, data)


def _between(leaf: Any, start: int, stop: int) -> Any:
    if not isinstance(leaf, tf.SparseTensor):
        return leaf[start:stop]
    _, *shape = leaf.dense_shape.numpy()
    return tf.sparse.slice(leaf, [start, *(0 for _ in shape)], [stop - start, *shape])


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
