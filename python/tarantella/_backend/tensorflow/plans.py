"""The core's plans, by which it reduces the tensors of a step."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import tensorflow as tf

from ..._job import runtime
from ..._job.environment import integer
from ..._job.groups import Group
from ..._names import short_name_of
from . import eager

# KB (1024 bytes) of a bucket of gradients. TNT_FUSION_THRESHOLD overrides it; 0: one bucket for each gradient.
DEFAULT_FUSION_THRESHOLD = 1024


class Plan(NamedTuple):
    """A plan of the core, as graphs use it."""

    number: int
    buckets: list[int]  # of each tensor
    anchor: tf.Variable  # what an operation reads so that it is never taken for a constant


# By owner: an optimizer's plans for the sets of variables that it was applied to, those of a loss or a layer for
# what it sums by the way.
_plans: weakref.WeakKeyDictionary[Any, dict[Any, Plan]] = weakref.WeakKeyDictionary()


def plan(owner: Any, gradients: list[tf.Tensor], variables: list[Any], group: Group) -> Plan:
    """The core's plan for these gradients of a group. Collective at the first call; later traces get the same one.

    It lives as long as `owner`, so that models made in a loop do not pile up memory.
    """
    key = (group.ranks, *((id(v), g.dtype.name) for g, v in zip(gradients, variables, strict=True)))
    tensors = [(short_name_of(v), g.dtype.name, tuple(v.shape)) for g, v in zip(gradients, variables, strict=True)]
    return plan_of(owner, key, "the gradients", tensors, group.context())


def plan_of(owner: Any, key: Any, what: str, tensors: list[tuple[str, str, tuple[int, ...]]], context: Any) -> Plan:
    """As `plan`, for tensors of these names, types and shapes."""
    if owner not in _plans:
        _plans[owner] = {}
        weakref.finalize(owner, _release, _plans[owner]).atexit = False
    if key not in _plans[owner]:
        threshold = integer("TNT_FUSION_THRESHOLD", DEFAULT_FUSION_THRESHOLD) * 1024
        number = context.plan(what, tensors, threshold)
        _plans[owner][key] = Plan(number, context.buckets(number, len(tensors)), eager.counter())
    return _plans[owner][key]


def _release(plans: dict[Any, Plan]) -> None:
    for each in plans.values():
        runtime.release(each.number)
