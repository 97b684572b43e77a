"""The figures of one run of a script, from the timeline of its ranks."""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from . import shares
from .trace import Rank, Span

NO_FIT = "no rank has trained in fit of a tarantella.Model"


@dataclass(frozen=True)
class Measured:
    """One run. Times are in seconds."""

    fit: float  # all calls of fit, on the slowest rank
    first: float | None  # the first epoch, from the begin of fit
    later: float | None  # mean of the epochs after the first; None if there are none
    rows: int | None  # trained on all ranks in total; None if the timeline does not tell
    later_rows: float | None  # the same, in a mean epoch after the first
    batch: float | None  # rows of the usual global batch
    shares: list[dict[str, float]]  # of each rank: see `shares.KINDS`
    steady: bool  # whether the shares are of the epochs after the first, not of all calls of fit

    def share(self, kind: str) -> float:
        """The share of a kind, mean over the ranks."""
        return statistics.mean(each[kind] for each in self.shares)


def problem(ranks: Sequence[Rank], expected: int, complete: bool = True) -> str:
    """The reason why a job of `expected` ranks cannot be measured; empty if it can."""
    idle = [number for number, rank in enumerate(ranks) if not (rank.fits and rank.steps)]
    if len(idle) == len(ranks):
        return NO_FIT
    if idle or len(ranks) < expected:
        return f"rank {idle[0] if idle else len(ranks)} has not trained in fit of a tarantella.Model"
    if not complete and any(len(rank.fits) > 1 for rank in ranks):
        return "its timeline has no room for all calls of fit: train fewer epochs, or in one call"
    return ""


def measured(ranks: Sequence[Rank], complete: bool = True) -> Measured:
    """The figures of a run for which `problem` returns nothing.

    A timeline that is not `complete` had no room for all events; the shares are those of the time that it covers.
    """
    slowest = max(ranks, key=lambda rank: sum(fit.end - fit.begin for fit in rank.fits))
    epochs = slowest.epochs
    known = float("inf") if complete else min(rank.last for rank in ranks)
    steady = all(len(rank.epochs) > 1 and rank.epochs[1].begin < known for rank in ranks)
    windows = [rank.epochs[1:] if steady else rank.fits for rank in ranks]
    rows = (_rows(ranks, [rank.fits for rank in ranks]) or None) if complete else None
    windows = [[Span(each.begin, min(each.end, known)) for each in mine if each.begin < known] for mine in windows]
    return Measured(
        fit=sum(fit.end - fit.begin for fit in slowest.fits),
        first=epochs[0].end - epochs[0].begin if epochs else None,
        later=statistics.mean(epoch.end - epoch.begin for epoch in epochs[1:]) if len(epochs) > 1 else None,
        rows=rows,
        later_rows=_rows(ranks, windows) / (len(epochs) - 1) if rows and steady else None,
        batch=_batch(ranks),
        shares=shares.of_ranks(ranks, windows),
        steady=steady,
    )


def _rows(ranks: Sequence[Rank], windows: Sequence[Sequence[Span]]) -> int:
    """The sum over the batches in the windows, which are disjoint."""
    found = 0
    for rank, mine in zip(ranks, windows, strict=True):
        times = [batch.time for batch in rank.batches]
        before = [0, *itertools.accumulate(batch.rows for batch in rank.batches)]
        for window in mine:
            found += before[bisect.bisect_left(times, window.end)] - before[bisect.bisect_left(times, window.begin)]
    return found


def _batch(ranks: Sequence[Rank]) -> float | None:
    """The median over the steps, since the last batch of an epoch may be smaller."""
    steps = zip(*([batch.rows for batch in rank.batches] for rank in ranks), strict=False)
    return statistics.median(sums) if (sums := [sum(rows) for rows in steps]) else None
