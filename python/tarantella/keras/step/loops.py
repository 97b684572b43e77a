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
        own = _weighed(gradients, variables, weight)
        reduced = backend.allreduce(
            optimizer,
            own,
            variables,
            gradients_of_step.keeps_no_gradient(optimizer, variables),
            check=gradients_of_step.are_checked(optimizer),
        )
        _look_at_the_first(optimizer, own, reduced)
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
    return backend.allreduce(owner, _weighed(gradients, variables, weight), variables, alias_outputs, group)


def _weighed(gradients: list[Any], variables: list[Any], weight: float) -> list[Any]:
    prepared = [backend.prepared(g, v) for g, v in zip(gradients, variables, strict=True)]
    return prepared if weight == 1 else [gradients_of_step.scaled(g, lambda _: weight) for g in prepared]


# By the id of the first variable; gone with it.
_owners: dict[int, training.Reduction] = {}


def owner_of(variable: Any) -> training.Reduction:
    """An owner that lives as long as a variable."""
    if id(variable) not in _owners:
        _owners[id(variable)] = training.Reduction()
        weakref.finalize(variable, functools.partial(_owners.pop, id(variable), None)).atexit = False
    return _owners[id(variable)]


def _look_at_the_first(optimizer: Any, grads: list[Any], reduced: list[Any]) -> None:
    """Warns once if all ranks have the same gradient of the largest variable: they train on the same rows."""
    size = runtime.get_size()

    def look(own: Any, total: Any) -> None:
        scale = np.abs(total).max(initial=0)
        if 0 < scale < np.inf and np.abs(size * own - total).max() <= 8 * np.finfo(own.dtype).eps * scale:
            log.warn_once(
                "the first gradients of all ranks are equal: every rank trains on the same rows, which is no faster "
                f"than one process, and under op='sum' {size} times its gradient; take this rank's rows: "
                "`for batch, share in tarantella.data.distribute(dataset)`"
            )

    backend.look_once(optimizer, grads, reduced, look)
