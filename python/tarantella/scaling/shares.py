"""Where the time of training goes: the share of each kind of work, and of waiting, of each rank."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from .trace import Rank, Span

# The kinds of time. What is two of them at once counts as the first in the order of `_layers`.
COMPUTE, INPUT, COMMUNICATION, WAITING, BETWEEN = KINDS = (
    "compute",
    "input",
    "communication",
    "waiting",
    "between steps",
)
Interval = tuple[float, float]


def of_ranks(ranks: Sequence[Rank], windows: Sequence[Sequence[Span]]) -> list[dict[str, float]]:
    """For each rank the share of each kind in the time of its windows. The shares of a rank sum to 1."""
    arrivals = _arrivals(ranks)
    result = []
    for rank, mine in zip(ranks, windows, strict=True):
        whole = [(window.begin, window.end) for window in mine]
        result.append(_shares(whole, _layers(rank, arrivals)))
    return result


def _shares(windows: list[Interval], layers: dict[str, list[Interval]]) -> dict[str, float]:
    total = _length(_union(windows))
    shares, known = dict.fromkeys(KINDS, 0.0), 0.0
    covered: list[Interval] = []
    for kind, intervals in layers.items():
        covered = _union([*covered, *intervals])
        length = _length(_intersection(covered, _union(windows)))
        shares[kind] = (length - known) / total if total else 0.0
        known = length
    shares[BETWEEN] = (total - known) / total if total else 1.0
    return shares


def _layers(rank: Rank, arrivals: dict[tuple[str, int], float]) -> dict[str, list[Interval]]:
    communication, waiting = _of_exchanges(rank, arrivals)
    for tracks in rank.plans.values():
        for buckets in zip(*tracks, strict=False):  # of one step
            # Before its last gradient the rank computes, and what happens to buckets costs it nothing.
            last = max(bucket.full for bucket in buckets)
            for bucket in buckets:
                waiting.append((max(bucket.full, last), max(bucket.met, last)))
                communication.append((max(bucket.met, last), bucket.end))
    return {
        COMMUNICATION: communication,
        WAITING: waiting,
        INPUT: _input(rank),
        COMPUTE: [(step.begin, step.end) for step in rank.steps],
    }


def _input(rank: Rank) -> list[Interval]:
    """Until a step has its (first) batch, from when it asks for it; where that is not known, from its begin."""
    times = [batch.time for batch in rank.batches]
    found = []
    for step in rank.steps:
        first = bisect.bisect_left(times, step.begin)
        if first < len(times) and times[first] <= step.end:
            found.append((max(step.begin, rank.batches[first].since), times[first]))
    return found


def _arrivals(ranks: Sequence[Rank]) -> dict[tuple[str, int], float]:
    """When the last rank has come to an exchange, by its name and its number among those of this name.

    Has none of a name that ranks do not have equally often.
    """
    begins = []
    for rank in ranks:
        mine: dict[str, list[float]] = {}
        for exchange in rank.exchanges:
            mine.setdefault(exchange.name, []).append(exchange.begin)
        begins.append(mine)
    found = {}
    for name, first in begins[0].items() if begins else ():
        if all(len(mine.get(name, ())) == len(first) for mine in begins):
            for number in range(len(first)):
                found[name, number] = max(mine[name][number] for mine in begins)
    return found


def _of_exchanges(rank: Rank, arrivals: dict[tuple[str, int], float]) -> tuple[list[Interval], list[Interval]]:
    """The intervals in which a rank communicates, and in which it waits for others, in blocking exchanges."""
    communication, waiting = [], []
    numbers: dict[str, int] = {}
    for exchange in rank.exchanges:
        number = numbers.setdefault(exchange.name, 0)
        numbers[exchange.name] += 1
        met = min(arrivals.get((exchange.name, number), exchange.begin), exchange.end)
        waiting.append((exchange.begin, met))
        communication.append((met, exchange.end))
    return communication, waiting


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points of time as disjoint intervals, sorted."""
    found: list[Interval] = []
    for begin, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _intersection(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """Of disjoint sorted intervals."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if begin < end:
            found.append((begin, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)
