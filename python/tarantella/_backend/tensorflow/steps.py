"""What a step does except reducing: count, look at gradients once; and running a step by itself."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import tree

from . import reduce, xla
from .graphs import Call, Place, all_before, through
from .operations import operations
from .variables import counter

# Up to 3.15 Keras takes the batch in the step's graph. What does not depend on the batch runs there even where the data
# has ended: an optimizer counts one step more.
_TAKES_BATCHES_IN_GRAPH = tuple(int(part) for part in keras.__version__.split(".")[:2]) < (3, 16)


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


def mark_batch(batch: Any, rows: Any) -> Any:
    if xla.compiled():
        return batch
    parts = tf.nest.flatten(batch, expand_composites=True)
    with tf.device("CPU:0"):  # where the pipeline leaves them
        with tf.control_dependencies([part for part in parts if isinstance(part, tf.Tensor)]):
            marked = operations().tarantella_batch(tf.cast(rows, tf.int64))
        with tf.control_dependencies([marked]):
            parts = [tf.identity(part) if isinstance(part, tf.Tensor) else part for part in parts]
    return tf.nest.pack_sequence_as(batch, parts, expand_composites=True)


def run_step(model: Any, kind: str, batch: Any) -> Any:
    getattr(model, f"make_{kind}_function")()
    function = getattr(model, f"{kind}_function")
    return function([batch] if kind == "predict" else iter([batch]))


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


@contextlib.contextmanager
def together(owner: Any, data: Any, rows: tf.Tensor) -> Iterator[tuple[Any, tf.Tensor, tf.Tensor, tf.Tensor]]:
    """An epoch ends with tf.errors.OutOfRangeError."""
    total = reduce.sum_over_ranks(owner, "rows of a step", tf.cast(tf.reshape(rows, [1]), tf.float64))
    total = tf.cast(total[0], tf.int64)
    # Nothing of a step that ends the epoch may run: a gradient of zeros, too, would move the optimizer.
    end = _end_where(total == 0)
    with tf.control_dependencies([end]):
        data, rows, total = tree.map_structure(
            lambda leaf: None if leaf is None else tf.identity(leaf), (data, rows, total)
        )
    # What does not depend on the batch, the count of an optimizer's steps, runs where in Keras it does too.
    with tf.control_dependencies([] if _TAKES_BATCHES_IN_GRAPH else [end]):
        yield data, tf.cast(rows, tf.int64), total, tf.zeros_like(total)


def _end_where(condition: tf.Tensor) -> tf.Tensor:
    def end() -> Any:
        raise StopIteration  # TensorFlow makes an OutOfRangeError of it

    return tf.cond(condition, lambda: tf.numpy_function(end, [], tf.int64), lambda: tf.constant(0, tf.int64))
