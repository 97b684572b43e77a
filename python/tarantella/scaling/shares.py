"""Divides the training time of each rank into compute, input, communication, waiting and the time between steps."""

from __future__ import annotations

import bisect
import itertools
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
        _shares({**_layers(rank, numbered, arrivals), BETWEEN: [(window.begin, window.end) for window in mine]})
        for rank, numbered, mine in zip(ranks, exchanges, windows, strict=True)
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
