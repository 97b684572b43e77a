"""The core's operations and its plans in graphs, and the order in which the runs of a reduction follow one another."""

from __future__ import annotations

import contextlib
import enum
import functools
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from .. import plans
from ..steps import in_fresh_thread


class Plan(NamedTuple):
    """A plan of the core, as graphs use it."""

    number: int
    buckets: list[int]  # of each tensor
    # Always 0: no number of a step. Operations read it, so that TensorFlow does not treat them as constants.
    zero_variable: tf.Variable


class StepCheck(enum.IntEnum):
    """Between which ranks the core compares the steps in which a plan is submitted: see `tnt_step_check`."""

    ON_NODE = 0
    ON_ALL_NODES = 1
    EXCLUSIVE = 2  # as ON_ALL_NODES; a rank submits nothing else before these are summed


def plan(
    owner: Any,
    key: Any,
    what: str,
    tensors: list[tuple[str, str, tuple[int, ...]]],
    context: Any,
    step_check: StepCheck = StepCheck.ON_NODE,
) -> Plan:
    """`_backend.plans.plan`, as graphs use it."""

    def make(number: int) -> Plan:
        return Plan(number, context.buckets(number, len(tensors)), counter())

    found: Plan = plans.plan(owner, key, what, tensors, context, int(step_check), make)
    return found


# By owner and the variables of a reduction: what its runs read when they begin, and assign when they have ended.
_runs: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], tf.Variable]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def ordered_runs(owner: Any, variables: Sequence[Any], number: Any) -> Iterator[tuple[Any, list[tf.Tensor]]]:
    """Orders the runs of one reduction in a step, as in a loop or in two calls of a function.

    Each starts after the one before has ended (`serialized`). Without a `number` nothing is ordered.
    """
    if number is None or tf.executing_eagerly():
        yield number, []
        return
    runs, key = _runs.setdefault(owner, {}), tuple(id(v) for v in variables)
    if key not in runs:
        runs[key] = counter()
    with serialized(runs[key], number) as turn:
        yield turn


@contextlib.contextmanager
def serialized(variable: tf.Variable, number: Any) -> Iterator[tuple[Any, list[tf.Tensor]]]:
    """Within a graph: keeps runs apart that name the same variable, so that each begins after the one before has ended.

    Gives `number` as a tensor that exists once the run before has ended, and a list to which the caller adds the
    tensors with which this run ends. TensorFlow keeps the order of operations that use a variable, also in branches,
    loops and functions.
    """
    ended: list[tf.Tensor] = []
    if not tf.executing_eagerly():
        with tf.control_dependencies([variable.read_value()]):
            number = tf.identity(number)
    yield number, ended
    if not tf.executing_eagerly():
        assign_after(ended, variable)


def assign_after(tensors: Sequence[tf.Tensor], variable: tf.Variable) -> None:
    """Assigns the variable its value of 0, once the tensors exist."""
    # Made below, the constant alone would depend on the tensors, and TensorFlow drops that.
    zero = tf.zeros(variable.shape, variable.dtype)
    with tf.control_dependencies(tensors):
        variable.assign(zero)


def ends_of_runs(owners: Sequence[Any]) -> list[tf.Tensor]:
    """In a graph: tensors that exist once all runs for these owners have ended."""
    return [run.read_value() for owner in owners for run in _runs.get(owner, {}).values()]


LIBRARY = str(Path(__file__).parents[2] / "libtarantella_tensorflow.so")


@functools.lru_cache(maxsize=1)
def operations() -> Any:
    """The functions that call the core's operations. Loads them when it is first called."""
    return tf.load_op_library(LIBRARY)


def counter() -> tf.Variable:
    return in_fresh_thread(lambda: tf.Variable(tf.zeros([], tf.int64), trainable=False))
