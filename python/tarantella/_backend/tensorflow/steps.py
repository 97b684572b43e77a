"""The steps of Keras's trainer: their hooks, their traces, running one by itself, and undoing what one has assigned."""

from __future__ import annotations

import contextvars
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree

from ..steps import Hook, Rollback, RunStep
from .graphs import FunctionCall, TensorInCall, body, functions, operations, resolved, walk_completes
from .plans import is_xla, zero_variable
from .provenance import READS, is_from_own_rows

steps_are_stateful = True


def step_hooks(model: Any, run: RunStep) -> list[Hook]:
    return [(model, f"{kind}_step", functools.partial(_step, run, kind)) for kind in ("train", "test", "predict")]


def _step(run: RunStep, kind: str, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(data: Any, rollback: Rollback | None = None) -> Any:
        return original(data) if rollback is None else rollback_where(rollback, lambda: original(data))

    def step(batch: Any) -> Any:
        return run(kind, batch, call)

    return step


def trace(step: Callable[[Any], Any], spec: Any, rows: Any = ...) -> None:
    def type_of_leaf(leaf: Any) -> Any:
        if isinstance(leaf, tf.OptionalSpec):
            return None
        if rows is ... or not isinstance(leaf, tf.TensorSpec) or not leaf.shape.rank:
            return leaf
        return tf.TensorSpec([rows, *leaf.shape[1:]], leaf.dtype)

    tf.function(step, autograph=False).get_concrete_function(tree.map_structure(type_of_leaf, spec))


def stand_in(tensor: tf.Tensor, rows: int | None) -> tf.Tensor:
    return tf.compat.v1.placeholder(tensor.dtype, [rows, *tensor.shape[1:]])


def is_used(tensor: tf.Tensor) -> bool:
    return bool(tensor.consumers())


def comes_from_inputs(tensor: tf.Tensor, but: Sequence[Any]) -> bool:
    graph = tf.compat.v1.get_default_graph()
    ends = {id(each) for each in but}
    inputs = {id(each) for each in graph.inputs} - {id(inner) for _, inner in graph.captures}

    def before(each: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
        if id(each) in inputs:
            return None
        if id(each) in ends:
            return []
        return resolved(each, call, control_flow=True) or [(i, call) for i in each.op.inputs]

    return not walk_completes(before, [(tensor, None)])


def run_step(model: Any, kind: str, batch: Any) -> Any:
    getattr(model, f"make_{kind}_function")()
    function = getattr(model, f"{kind}_function")
    return function([batch] if kind == "predict" else iter([batch]))


def sync(model: Any) -> None:
    """TensorFlow's steps have ended, and have assigned the variables, before anything reads these."""


def type_of(part: Any) -> Any:
    """The type of a tensor, dense or not, with any number of rows: axis 0 is None. A scalar has none. None stays."""
    if part is None:
        return None
    if len(part.shape) == 0:
        return tf.type_spec_from_value(part)
    shape = [None, *part.shape[1:]]
    if isinstance(part, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, part.dtype, part.ragged_rank, part.row_splits.dtype)
    return (tf.SparseTensorSpec if isinstance(part, tf.SparseTensor) else tf.TensorSpec)(shape, part.dtype)


def cut_rows(tensor: Any, start: Any, count: Any) -> Any:
    """So many rows of a tensor, dense or not."""
    if not isinstance(tensor, tf.SparseTensor):
        return tensor[start : start + count]
    shape = tensor.dense_shape[1:]
    return tf.sparse.slice(tensor, tf.concat([[start], tf.zeros_like(shape)], 0), tf.concat([[count], shape], 0))


# By optimizer: whether its first gradients have been looked at.
_inspected: weakref.WeakKeyDictionary[Any, tf.Variable] = weakref.WeakKeyDictionary()


def inspect_once(owner: Any, values: Sequence[Any], sums: Sequence[Any], inspect: Callable[[Any, Any], None]) -> None:
    """In a graph it is part of it; under XLA nothing is looked at, nor slices, nor floats of less than 32 bits."""
    dense = [i for i, v in enumerate(values) if isinstance(v, tf.Tensor) and v.dtype in (tf.float32, tf.float64)]
    if not dense or is_xla():
        return
    largest = max(dense, key=lambda i: values[i].shape.num_elements() or 0)
    looked = _inspected.setdefault(owner, zero_variable())

    def call(own: Any, total: Any) -> np.int64:
        inspect(own, total)
        return np.int64(0)

    def run() -> tf.Tensor:
        looked.assign(1)
        return tf.numpy_function(call, [values[largest], sums[largest]], tf.int64)

    tf.cond(looked == 0, run, lambda: tf.constant(0, tf.int64))


# What TensorFlow's key for traces gets in a sandbox: functions that are called there are traced for it alone.
sandbox_trace_key: contextvars.ContextVar[object | None] = contextvars.ContextVar("tarantella_trace_key", default=None)


def current_trace() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def rollback_where(rollback: Rollback, step: Callable[[], Any]) -> Any:
    """Runs the step and returns its result; where the condition holds, it is undone."""
    condition, every = rollback.condition, [*rollback.variables, *rollback.if_local]
    values = [getattr(v, "value", v) for v in every]

    # Both branches must agree in type only: where nothing is undone, nothing is copied.
    def keep() -> list[tf.Tensor]:
        return [tf.reshape(tf.identity(v), [-1]) for v in values]

    def skip() -> list[tf.Tensor]:
        return [tf.zeros([0], v.dtype) for v in values]

    # XLA wants the shapes to agree too.
    saved = [] if not values else keep() if is_xla() else tf.cond(condition, keep, skip)
    result = step()
    same_on_all_ranks = {id(v) for v in rollback.exempt()}
    if not tf.executing_eagerly():
        own = _assigned_from_own_rows()
        same_on_all_ranks |= {id(v) for v in rollback.if_local if id(getattr(v, "value", v).handle) not in own}

    def restore() -> tf.Tensor:
        for variable, value, old in zip(every, values, saved, strict=True):
            if id(variable) not in same_on_all_ranks:
                value.assign(tf.reshape(old, value.shape))
        return tf.constant(0)

    if values:
        tf.cond(condition, restore, lambda: tf.constant(0))
    return result


def assigned(graph: Any) -> set[int]:
    """The ids of the handles of variables to which a graph, or a function that it calls, assigns."""
    return {key for _, _, handles in _assignments(graph) for key in _captured(handles)}


def _assignments(graph: Any) -> Iterator[tuple[Any, FunctionCall | None, list[TensorInCall]]]:
    """The operations that assign, what runs each, and the handles of its variables."""
    for op, call in operations(graph):
        handles = [(each, call) for each in op.inputs if each.dtype == tf.resource]
        if handles and op.type not in READS and not functions(op, None):
            yield op, call, handles


def _assigned_from_own_rows() -> set[int]:
    """As `assigned`, in the trace, of what this rank has for itself."""
    found: set[int] = set()
    for op, call, handles in _assignments(tf.compat.v1.get_default_graph()):
        values = [(each, call) for each in op.inputs if each.dtype != tf.resource]
        if is_from_own_rows([*values, *_conditions(call)]):
            found |= _captured(handles)
    return found


def _conditions(call: FunctionCall | None) -> Iterator[TensorInCall]:
    """What decides whether, or how often, the functions around run."""
    while call is not None:
        if call.attribute == "body":
            condition = call._replace(attribute="cond")
            yield body(condition).outputs[0], condition
        elif call.attribute != "f":
            yield call.op.inputs[0], call.around
        call = call.around


def _captured(handles: list[TensorInCall]) -> set[int]:
    found: set[int] = set()

    def before(tensor: Any, call: FunctionCall | None) -> list[TensorInCall]:
        outer = resolved(tensor, call) or []
        found.update(id(each) for each, _ in outer)
        return outer

    walk_completes(before, handles)
    return found


def variables_outside(layers: Sequence[Any]) -> list[tf.Variable]:
    found: dict[int, tf.Variable] = {}
    for layer in layers:
        for leaf in _leaves(list(vars(layer).values())):
            if isinstance(leaf, tf.Module):
                found.update((id(each), each) for each in leaf.variables)
            elif isinstance(leaf, tf.Variable | tf.random.Generator):
                variable = getattr(leaf, "state", leaf)
                found[id(variable)] = variable
    return list(found.values())


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value


def gradients(loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, [v.value for v in variables])
    return [None if g is None else tf.convert_to_tensor(g) for g in found]
