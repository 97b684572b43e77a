"""The figures of one run of a script, from the timeline of its ranks."""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .trace import Rank, Span

NO_FIT = "no rank has trained in fit of a tarantella.Model"

# The kinds of time. Time of two kinds counts as the first one in the order of `_layers`.
COMPUTE, INPUT, COMMUNICATION, WAITING, BETWEEN = KINDS = (
    "compute",
    "input",
    "communication",
    "waiting",
    "between steps",
)
Interval = tuple[float, float]


@dataclass(frozen=True)
class Measured:
    """One run. Times are in seconds."""

    fit: float  # all calls of fit, on the slowest rank
    first: float | None  # the first epoch, from the begin of fit
    later: float | None  # mean of the epochs after the first; None if there are none
    rows: int | None  # trained on all ranks in total; None if the timeline does not tell
    later_rows: float | None  # the same, in a mean epoch after the first
    batch: float | None  # rows of the usual global batch
    shares: list[dict[str, float]]  # of each rank: see `KINDS`
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
        shares=shares_of(ranks, windows),
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


def shares_of(ranks: Sequence[Rank], windows: Sequence[Sequence[Span]]) -> list[dict[str, float]]:
    """The share of each kind in the windows of each rank. The shares of a rank sum to 1."""
    exchanges = [_by_name(rank.exchanges) for rank in ranks]
    arrivals = _arrivals(exchanges)
    return [
        _shares({**_layers(rank, named, arrivals), BETWEEN: [(window.begin, window.end) for window in mine]})
        for rank, named, mine in zip(ranks, exchanges, windows, strict=True)
    ]


def _shares(layers: dict[str, list[Interval]]) -> dict[str, float]:
    """Gives each moment of the last layer to the first one that covers it."""
    bounds = sorted(
        bound
        for kind, intervals in layers.items()
        for begin, end in intervals
        if begin < end
        for bound in ((begin, kind, 1), (end, kind, -1))
    )
    lengths, opened = dict.fromkeys(KINDS, 0.0), Counter[str]()
    for (begin, kind, change), (end, _, _) in itertools.pairwise(bounds):
        opened[kind] += change
        if opened[BETWEEN]:
            lengths[next(each for each in layers if opened[each])] += end - begin
    total = sum(lengths.values())
    return {kind: length / total for kind, length in lengths.items()} if total else {**lengths, BETWEEN: 1.0}


def _layers(
    rank: Rank, exchanges: dict[str, list[Span]], arrivals: dict[str, list[float]]
) -> dict[str, list[Interval]]:
    communication, waiting = [], []
    for name, mine in exchanges.items():
        for exchange, arrival in zip(mine, arrivals.get(name, [each.begin for each in mine]), strict=True):
            all_there = min(arrival, exchange.end)
            waiting.append((exchange.begin, all_there))
            communication.append((all_there, exchange.end))
    for tracks in rank.plans.values():
        for buckets in zip(*tracks, strict=False):  # of one step
            # Before its last gradient the rank computes, so that sums of earlier buckets cost no time.
            last = max(bucket.full for bucket in buckets)
            for bucket in buckets:
                waiting.append((max(bucket.full, last), max(bucket.all_full, last)))
                communication.append((max(bucket.all_full, last), bucket.end))
    return {
        COMMUNICATION: communication,
        WAITING: waiting,
        INPUT: _input(rank),
        COMPUTE: [(step.begin, step.end) for step in rank.steps],
    }


def _input(rank: Rank) -> list[Interval]:
    """From the begin of each step until it has its (first) batch."""
    times = [batch.time for batch in rank.batches]
    found = []
    for step in rank.steps:
        first = bisect.bisect_left(times, step.begin)
        if first < len(times) and times[first] <= step.end:
            found.append((step.begin, times[first]))
    return found


def _by_name(exchanges: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for each in exchanges:
        found.setdefault(each.name, []).append(each)
    return found


def _arrivals(ranks: Sequence[dict[str, list[Span]]]) -> dict[str, list[float]]:
    """When the last rank began each exchange. Leaves out names that some ranks have more often than others."""
    return {
        name: [max(each.begin for each in same) for same in zip(*(rank[name] for rank in ranks), strict=True)]
        for name in (ranks[0] if ranks else ())
        if len({len(rank.get(name, ())) for rank in ranks}) == 1
    }
