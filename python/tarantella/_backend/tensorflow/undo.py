"""Undoing what a step has assigned on a rank without rows, which ran it for a padding row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ..steps import Undo
from . import xla
from .graphs import Call, Place, all_before, body, functions, operations, through
from .upstream import READS, is_from_own_rows


def undo_where(undo: Undo, step: Callable[[], Any]) -> Any:
    """Runs the step and returns its result; where the condition holds, it is undone."""
    condition, every = undo.condition, [*undo.variables, *undo.where_own]
    values = [getattr(v, "value", v) for v in every]

    # Both branches must agree in type only: where nothing is undone, nothing is copied.
    def keep() -> list[tf.Tensor]:
        return [tf.reshape(tf.identity(v), [-1]) for v in values]

    def skip() -> list[tf.Tensor]:
        return [tf.zeros([0], v.dtype) for v in values]

    # XLA wants the shapes to agree too.
    saved = [] if not values else keep() if xla.compiled() else tf.cond(condition, keep, skip)
    result = step()
    alike = {id(v) for v in undo.kept()}
    if not tf.executing_eagerly():
        own = _assigned_from_own_rows()
        alike |= {id(v) for v in undo.where_own if id(getattr(v, "value", v).handle) not in own}

    def restore() -> tf.Tensor:
        for variable, value, old in zip(every, values, saved, strict=True):
            if id(variable) not in alike:
                value.assign(tf.reshape(old, value.shape))
        return tf.constant(0)

    if values:
        tf.cond(condition, restore, lambda: tf.constant(0))
    return result


def assigned(graph: Any) -> set[int]:
    """The ids of the handles of variables to which a graph, or a function that it calls, assigns."""
    return {key for _, _, handles in _assignments(graph) for key in _captured(handles)}


def _assignments(graph: Any) -> Iterator[tuple[Any, Call | None, list[Place]]]:
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


def _conditions(call: Call | None) -> Iterator[Place]:
    """What decides whether, or how often, the functions around run."""
    while call is not None:
        if call.attribute == "body":
            condition = call._replace(attribute="cond")
            yield body(condition).outputs[0], condition
        elif call.attribute != "f":
            yield call.op.inputs[0], call.around
        call = call.around


def _captured(handles: list[Place]) -> set[int]:
    found: set[int] = set()

    def before(tensor: Any, call: Call | None) -> list[Place]:
        outer = through(tensor, call) or []
        found.update(id(each) for each, _ in outer)
        return outer

    all_before(before, handles)
    return found
