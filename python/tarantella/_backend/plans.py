"""The core's plans, by what owns them: sets of tensors that are summed again and again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from .._job import runtime
from .._job.environment import integer

# KB (1024 bytes) of a bucket of gradients. TNT_FUSION_THRESHOLD overrides it; 0: one bucket for each gradient.
DEFAULT_FUSION_THRESHOLD = 1024

# By owner: an optimizer's plans for the sets of variables that it was applied to, those of a loss or a layer for
# what it sums by the way. What was made of the numbers in the core.
_plans: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def plan(
    owner: Any,
    key: Any,
    what: str,
    tensors: list[tuple[str, str, tuple[int, ...]]],
    context: Any,
    step_check: int = 0,
    make: Callable[[int], Any] = lambda number: number,
) -> Any:
    """What `make` makes of the core's plan for tensors of these names, types and shapes, by default its number.

    Collective at the first call for a `key`; later traces get the same. It lives as long as `owner`, so that models
    made in a loop do not pile up memory. `step_check` is a `tnt_step_check` of `tarantella.h`.
    """
    known = _plans.setdefault(owner, {})
    if key not in known:
        threshold = integer("TNT_FUSION_THRESHOLD", DEFAULT_FUSION_THRESHOLD) * 1024
        number = context.plan(what, tensors, threshold, step_check)
        weakref.finalize(owner, runtime.release, number).atexit = False
        known[key] = make(number)
    return known[key]
