"""The core's plans, by which it reduces the tensors of a step."""

from __future__ import annotations

import contextlib
import enum
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..._job import runtime
from ..._job.environment import integer
from ..._job.groups import Group
from ..._names import short_name_of
from .variables import counter

# KB (1024 bytes) of a bucket of gradients. TNT_FUSION_THRESHOLD overrides it; 0: one bucket for each gradient.
DEFAULT_FUSION_THRESHOLD = 1024


class Plan(NamedTuple):
    """A plan of the core, as graphs use it."""

    number: int
    buckets: list[int]  # of each tensor
    # Always 0, which stands for no number of a step. Operations read it, so that TensorFlow takes none for a constant.
    zero_variable: tf.Variable


# By owner: an optimizer's plans for the sets of variables that it was applied to, those of a loss or a layer for
# what it sums by the way.
_plans: weakref.WeakKeyDictionary[Any, dict[Any, Plan]] = weakref.WeakKeyDictionary()


class Numbers(enum.IntEnum):
    """What is done with the numbers of steps that tensors of a plan are submitted with."""

    NONE = 0
    OF_STEPS = 1  # ranks compare them
    EXCLUSIVE = 2  # as OF_STEPS; a rank submits nothing else before these are summed


def plan(
    owner: Any,
    gradients: list[tf.Tensor],
    variables: list[Any],
    group: Group,
    numbers: Numbers = Numbers.NONE,
    check: bool = False,
) -> Plan:
    """The core's plan for these gradients of a group. Collective at the first call; later traces get the same one.

    It lives as long as `owner`, so that models made in a loop do not pile up memory. With `check`, a gradient that is
    not finite ends the job.
    """
    key = (group.ranks, numbers, *((id(v), g.dtype.name) for g, v in zip(gradients, variables, strict=True)))
    tensors = [(short_name_of(v), g.dtype.name, tuple(v.shape)) for g, v in zip(gradients, variables, strict=True)]
    context = group.context()
    made = plan_of(owner, key, "the gradients", tensors, context, numbers)
    if check and context is not None:
        context.check_finite(made.number)
    return made


def plan_of(
    owner: Any,
    key: Any,
    what: str,
    tensors: list[tuple[str, str, tuple[int, ...]]],
    context: Any,
    numbers: Numbers = Numbers.NONE,
) -> Plan:
    """As `plan`, for tensors of these names, types and shapes."""
    if owner not in _plans:
        _plans[owner] = {}
        weakref.finalize(owner, _release, _plans[owner]).atexit = False
    if key not in _plans[owner]:
        threshold = integer("TNT_FUSION_THRESHOLD", DEFAULT_FUSION_THRESHOLD) * 1024
        number = context.plan(what, tensors, threshold, int(numbers))
        _plans[owner][key] = Plan(number, context.buckets(number, len(tensors)), counter())
    return _plans[owner][key]


# By owner and the variables of a reduction: what its runs read when they begin, and assign when they have ended.
_runs: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], tf.Variable]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def following_runs(owner: Any, variables: Sequence[Any], number: Any) -> Iterator[tuple[Any, list[tf.Tensor]]]:
    """Within a graph: keeps the runs of a reduction apart, so that each begins after the one before has ended.

    Gives `number` as a tensor that is there after the run before has ended, and a list to which the caller adds the
    tensors with which this run ends. So the graph may run again before its step ends: in a loop, or in another call of
    its function. Without a number, and eagerly, runs are not kept apart.
    """
    ended: list[tf.Tensor] = []
    if number is None or tf.executing_eagerly():
        yield number, ended
        return
    runs, key = _runs.setdefault(owner, {}), tuple(id(v) for v in variables)
    if key not in runs:
        runs[key] = counter()
    with tf.control_dependencies([runs[key].read_value()]):
        number = tf.identity(number)
    yield number, ended
    assign_after(ended, runs[key])


def assign_after(tensors: Sequence[tf.Tensor], variable: tf.Variable) -> None:
    """Assigns the variable its value of 0, after the tensors are there."""
    # Within, a constant would keep the dependence to itself, and lose it.
    zero = tf.zeros(variable.shape, variable.dtype)
    with tf.control_dependencies(tensors):
        variable.assign(zero)


def ends_of_runs(owners: Sequence[Any]) -> list[tf.Tensor]:
    """In a graph: what is there after all runs for these owners have ended."""
    return [run.read_value() for owner in owners for run in _runs.get(owner, {}).values()]


def _release(plans: dict[Any, Plan]) -> None:
    for each in plans.values():
        runtime.release(each.number)
