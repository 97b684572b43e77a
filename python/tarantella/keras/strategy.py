"""The ways to distribute a model over ranks."""

from __future__ import annotations

import enum


class ParallelStrategy(enum.Flag):
    """How `tarantella.Model` distributes a model: by data, in a pipeline, or both (`ALL`)."""

    NONE = 0
    DATA = enum.auto()
    PIPELINING = enum.auto()
    ALL = DATA | PIPELINING


def check_strategy(strategy: object) -> ParallelStrategy:
    """Returns `strategy` if it can be used.

    Raises TypeError for anything except a `ParallelStrategy`, NotImplementedError for pipelining.
    """
    if not isinstance(strategy, ParallelStrategy):
        raise TypeError(
            f"parallel_strategy must be a tarantella.ParallelStrategy, such as ParallelStrategy.DATA (got {strategy!r})"
        )
    if strategy & ParallelStrategy.PIPELINING:
        name = "ALL" if strategy == ParallelStrategy.ALL else "PIPELINING"
        raise NotImplementedError(
            f"ParallelStrategy.{name} needs pipelining, which is not available yet; use ParallelStrategy.DATA"
        )
    return strategy
