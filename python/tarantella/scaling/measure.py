"""The figures of one run of a script, from the timeline of its ranks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from . import shares
from .trace import Rank, Span


@dataclass(frozen=True)
class Measured:
    """One run. Times are in seconds."""

    fit: float  # all calls of fit, on the rank on which they took longest
    first: float | None  # from the begin of the first one to the end of its first epoch
    later: float | None  # mean of the epochs after the first; None if there are none
    rows: int | None  # trained in all, on all ranks; None if the timeline does not tell
    later_rows: float | None  # the same, in a mean epoch after the first
    batch: float | None  # rows of the usual global batch
    shares: list[dict[str, float]]  # of each rank: see `shares.KINDS`
    steady: bool  # whether the shares are of the epochs after the first, not of all calls of fit

    @property
    def utilisation(self) -> float:
        """The share of compute, mean over the ranks."""
        return statistics.mean(each[shares.COMPUTE] for each in self.shares)

    def share(self, kind: str) -> float:
        """The share of a kind, mean over the ranks."""
        return statistics.mean(each[kind] for each in self.shares)


def measured(ranks: Sequence[Rank], complete: bool = True) -> Measured | None:
    """The figures of a run; None if no rank has trained in a call of fit.

    The timeline is not `complete` if it had no room for all events: what came later is left out of the shares.
    """
    if not ranks or not all(rank.fits and rank.steps for rank in ranks):
        return None
    slowest = max(ranks, key=lambda rank: sum(fit.end - fit.begin for fit in rank.fits))
    epochs = slowest.epochs
    steady = all(len(rank.epochs) > 1 for rank in ranks)
    windows = [rank.epochs[1:] if steady else rank.fits for rank in ranks]
    rows = (_rows(ranks, [rank.fits for rank in ranks]) or None) if complete else None
    if not complete:
        known = min(rank.last for rank in ranks)
        windows = [[Span(each.begin, min(each.end, known)) for each in mine if each.begin < known] for mine in windows]
    return Measured(
        fit=sum(fit.end - fit.begin for fit in slowest.fits),
        first=epochs[0].end - slowest.fits[0].begin if epochs else None,
        later=statistics.mean(epoch.end - epoch.begin for epoch in epochs[1:]) if len(epochs) > 1 else None,
        rows=rows,
        later_rows=_rows(ranks, windows) / (len(epochs) - 1) if rows and steady else None,
        batch=_batch(ranks) if rows else None,
        shares=shares.of_ranks(ranks, windows),
        steady=steady,
    )


def _rows(ranks: Sequence[Rank], windows: Sequence[Sequence[Span]]) -> int:
    return sum(
        batch.rows
        for rank, mine in zip(ranks, windows, strict=True)
        for batch in rank.batches
        if any(window.begin <= batch.time <= window.end for window in mine)
    )


def _batch(ranks: Sequence[Rank]) -> float:
    """The median over the steps, since the last batch of an epoch may be smaller."""
    steps = zip(*([batch.rows for batch in rank.batches] for rank in ranks), strict=False)
    return statistics.median(sum(rows) for rows in steps)
