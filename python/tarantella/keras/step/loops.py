"""What is done with the gradients of a user-defined loop, which has no model."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np

from ..._backend import backend
from ..._job import log, runtime
from ..._job.groups import Group
from .. import training
from . import gradients as gradients_of_step


def reduce_with(weight: float) -> training.Loop:
    """Sums the gradients of all ranks, each rank's times `weight`."""

    def loop(optimizer: Any, gradients: list[Any], variables: list[Any], apply: Any) -> Any:
        reduced = backend.allreduce(
            optimizer,
            gradients,
            variables,
            weight,
            alias_outputs=gradients_of_step.keeps_no_gradient(optimizer, variables),
            check=gradients_of_step.are_checked(optimizer),
            look=_look_at_the_first,
        )
        return apply(reduced)

    return loop


def reduced(
    owner: Any,
    gradients: list[Any],
    variables: list[Any],
    weight: float,
    group: Group | None,
    alias_outputs: bool = False,
) -> list[Any]:
    """The sum over the ranks of a group of each rank's gradients times `weight`. Collective in the group.

    With `alias_outputs` as `Backend.allreduce`. Reductions for one owner of the same variables must follow one another.
    """
    return backend.allreduce(owner, gradients, variables, weight, alias_outputs, group)


# By the id of the first variable; gone with it.
_owners: dict[int, training.Reduction] = {}


def owner_of(variable: Any) -> training.Reduction:
    """An owner that lives as long as a variable."""
    if id(variable) not in _owners:
        _owners[id(variable)] = training.Reduction()
        weakref.finalize(variable, functools.partial(_owners.pop, id(variable), None)).atexit = False
    return _owners[id(variable)]


def _look_at_the_first(own: Any, total: Any) -> None:
    """Warns once if all ranks have the same gradient of the largest variable: they train on the same rows."""
    size, scale = runtime.get_size(), np.abs(total).max(initial=0)
    if 0 < scale < np.inf and np.abs(size * own - total).max() <= 8 * np.finfo(own.dtype).eps * scale:
        log.warn_once(
            "the first gradients of all ranks are equal: every rank trains on the same rows, which is no faster "
            f"than one process, and under op='sum' {size} times its gradient; take this rank's rows: "
            "`for batch, share in tarantella.data.distribute(dataset)`"
        )
