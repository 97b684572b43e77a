"""The steps of Keras's trainer: their hooks, their traces, and running one by itself."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree

from ..steps import Hook, RunStep, Undo
from . import xla
from .graphs import Call, Place, all_before, through
from .undo import undo_where
from .variables import counter

assigns_in_steps = True


def step_hooks(model: Any, run: RunStep) -> list[Hook]:
    return [(model, f"{kind}_step", functools.partial(_step, run, kind)) for kind in ("train", "test", "predict")]


def _step(run: RunStep, kind: str, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(data: Any, undo: Undo | None = None) -> Any:
        return original(data) if undo is None else undo_where(undo, lambda: original(data))

    def step(batch: Any) -> Any:
        return run(kind, batch, call)

    return step


def beginning(function: Callable[..., Any], begin: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda iterator: function(begin(iterator))


def trace(step: Callable[[Any], Any], spec: Any, rows: Any = ...) -> None:
    def type_of_leaf(leaf: Any) -> Any:
        if isinstance(leaf, tf.OptionalSpec):
            return None
        if rows is ... or not isinstance(leaf, tf.TensorSpec) or not leaf.shape.rank:
            return leaf
        return tf.TensorSpec([rows, *leaf.shape[1:]], leaf.dtype)

    tf.function(step, autograph=False).get_concrete_function(tree.map_structure(type_of_leaf, spec))


def strategy_of(model: Any) -> str:
    strategy = model.distribute_strategy
    return (
        "" if strategy is tf.distribute.get_strategy() and not tf.distribute.has_strategy() else type(strategy).__name__
    )


def stand_in(tensor: tf.Tensor, rows: int | None) -> tf.Tensor:
    return tf.compat.v1.placeholder(tensor.dtype, [rows, *tensor.shape[1:]])


def is_used(tensor: tf.Tensor) -> bool:
    return bool(tensor.consumers())


def comes_from_inputs(tensor: tf.Tensor, but: Sequence[Any]) -> bool:
    graph = tf.compat.v1.get_default_graph()
    ends = {id(each) for each in but}
    inputs = {id(each) for each in graph.inputs} - {id(inner) for _, inner in graph.captures}

    def before(each: Any, call: Call | None) -> list[Place] | None:
        if id(each) in inputs:
            return None
        if id(each) in ends:
            return []
        return through(each, call, control_flow=True) or [(i, call) for i in each.op.inputs]

    return not all_before(before, [(tensor, None)])


def run_step(model: Any, kind: str, batch: Any) -> Any:
    getattr(model, f"make_{kind}_function")()
    function = getattr(model, f"{kind}_function")
    return function([batch] if kind == "predict" else iter([batch]))


def sync(model: Any) -> None:
    """TensorFlow's steps have ended, and have assigned the variables, before anything reads these."""


def type_of(part: Any) -> tf.TypeSpec:
    if len(part.shape) == 0:
        return tf.type_spec_from_value(part)
    shape = [None, *part.shape[1:]]
    if isinstance(part, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, part.dtype, part.ragged_rank, part.row_splits.dtype)
    return (tf.SparseTensorSpec if isinstance(part, tf.SparseTensor) else tf.TensorSpec)(shape, part.dtype)


# By optimizer: whether its first gradients have been looked at.
_looked: weakref.WeakKeyDictionary[Any, tf.Variable] = weakref.WeakKeyDictionary()


def look_once(owner: Any, values: Sequence[Any], sums: Sequence[Any], look: Callable[[Any, Any], None]) -> None:
    """In a graph it is part of it; under XLA nothing is looked at, nor slices, nor floats of less than 32 bits."""
    dense = [i for i, v in enumerate(values) if isinstance(v, tf.Tensor) and v.dtype in (tf.float32, tf.float64)]
    if not dense or xla.compiled():
        return
    largest = max(dense, key=lambda i: values[i].shape.num_elements() or 0)
    looked = _looked.setdefault(owner, counter())

    def call(own: Any, total: Any) -> np.int64:
        look(own, total)
        return np.int64(0)

    def run() -> tf.Tensor:
        looked.assign(1)
        return tf.numpy_function(call, [values[largest], sums[largest]], tf.int64)

    tf.cond(looked == 0, run, lambda: tf.constant(0, tf.int64))


def current_trace() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
