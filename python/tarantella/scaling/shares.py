"""Divides the training time of each rank into compute, input, communication, waiting and the time between steps."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence

from .trace import Rank, Span

# The kinds of time. Time of two kinds counts as the first one in the order of `_layers`.
COMPUTE, INPUT, COMMUNICATION, WAITING, BETWEEN = KINDS = (
    "compute",
    "input",
    "communication",
    "waiting",
    "between steps",
)
Interval = tuple[float, float]
_Key = tuple[str, int]
_Exchanges = dict[_Key, Span]


def of_ranks(ranks: Sequence[Rank], windows: Sequence[Sequence[Span]]) -> list[dict[str, float]]:
    """The share of each kind in the windows of each rank. The shares of a rank sum to 1."""
    exchanges = [_numbered(rank.exchanges) for rank in ranks]
    arrivals = _arrivals(exchanges)
    return [
        _shares([(window.begin, window.end) for window in mine], _layers(rank, numbered, arrivals))
        for rank, numbered, mine in zip(ranks, exchanges, windows, strict=True)
    ]


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


def _layers(rank: Rank, exchanges: _Exchanges, arrivals: dict[_Key, float]) -> dict[str, list[Interval]]:
    communication, waiting = [], []
    for key, exchange in exchanges.items():
        all_there = min(arrivals.get(key, exchange.begin), exchange.end)
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


def _numbered(exchanges: Iterable[Span]) -> _Exchanges:
    """The exchanges by name and by number among those of this name."""
    counts: Counter[str] = Counter()
    found = {}
    for each in exchanges:
        found[each.name, counts[each.name]] = each
        counts[each.name] += 1
    return found


def _arrivals(ranks: Sequence[_Exchanges]) -> dict[_Key, float]:
    """The time when the last rank began each exchange. Leaves out names that some ranks have more often than others."""
    counts = [Counter(name for name, _ in each) for each in ranks]
    return {
        key: max(each[key].begin for each in ranks)
        for key in (ranks[0] if ranks else ())
        if len({count[key[0]] for count in counts}) == 1
    }


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merges intervals into disjoint sorted ones."""
    found: list[Interval] = []
    for begin, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _intersection(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """The intersection of two lists of disjoint sorted intervals."""
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
