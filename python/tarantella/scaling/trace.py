"""Reads the timeline of a job (docs/timeline.md) by rank. All times are in seconds, on one clock."""

from __future__ import annotations

import bisect
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

# The tracks of the buckets of a plan have numbers from a multiple of this on.
_TRACKS_OF_A_PLAN = 1_000_000


class Span(NamedTuple):
    """An interval of the timeline."""

    begin: float
    end: float
    name: str = ""


class Bucket(NamedTuple):
    """The times at which a bucket was filled and summed over ranks."""

    full: float  # this rank has added all its gradients
    all_full: float  # all ranks have
    end: float  # the sums are complete


class Batch(NamedTuple):
    """A batch that a training step received."""

    time: float
    rows: int  # of this rank


@dataclass
class Rank:
    """The timeline of one rank, each list in the order of time."""

    fits: list[Span] = field(default_factory=list)
    epochs: list[Span] = field(default_factory=list)  # each from the end of the one before it, or the begin of its fit
    steps: list[Span] = field(default_factory=list)  # of training, evaluation and prediction
    exchanges: list[Span] = field(default_factory=list)  # of the thread that calls fit
    batches: list[Batch] = field(default_factory=list)
    plans: dict[int, list[list[Bucket]]] = field(default_factory=dict)  # by plan: the buckets of its tracks
    last: float = 0.0  # when the last event began


class Timeline(NamedTuple):
    """The content of a file."""

    ranks: list[Rank]  # in order
    complete: bool  # whether there was room for all records


def read(path: Path) -> Timeline:
    """Reads a file. Raises OSError, and ValueError or LookupError if it is not a timeline."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    ranks: dict[int, list[dict[str, Any]]] = {}
    for event in document["traceEvents"]:
        ranks.setdefault(event["pid"], []).append(event)
    complete = not document.get("otherData", {}).get("lost")
    return Timeline([_rank(ranks[number]) for number in sorted(ranks)], complete)


def _rank(events: list[dict[str, Any]]) -> Rank:
    timed = [event for event in events if event["ph"] in "Xi"]
    main = next((event["tid"] for event in timed if event["cat"] == "call" and event["name"] == "fit"), None)
    rank = Rank(last=max((event["ts"] for event in timed), default=0.0) / 1e6)
    inner: list[Span] = []  # calls of fit by callbacks of another one
    for event in timed:
        kind = event["cat"]
        if kind == "batch":
            rank.batches.append(Batch((event["ts"] + event.get("dur", 0)) / 1e6, event["args"]["rows"]))
        if event["ph"] != "X" or event["tid"] != main:
            continue
        span = _span(event)
        if kind == "call" and span.name == "fit":
            (inner if rank.fits and span.begin < rank.fits[-1].end else rank.fits).append(span)
        elif kind == "part" and span.name.startswith("epoch "):
            rank.epochs.append(span)
        elif kind == "step":
            rank.steps.append(span)
        elif kind == "exchange":
            rank.exchanges.append(span)
    rank.epochs = _epochs(_outside(inner, rank.epochs), rank.fits)
    rank.steps = _outside(inner, rank.steps)
    rank.batches = [batch for batch in sorted(rank.batches) if _in_a_step(batch.time, rank.steps)]
    for track, buckets in _buckets(timed).items():
        rank.plans.setdefault(track // _TRACKS_OF_A_PLAN, []).append(buckets)
    return rank


def _outside(inner: list[Span], spans: list[Span]) -> list[Span]:
    return [span for span in spans if not any(_within(span, each) for each in inner)]


def _epochs(epochs: list[Span], fits: list[Span]) -> list[Span]:
    """The epochs in calls of fit, each extended to begin at the end of the one before it, or at the begin of fit."""
    found = []
    for fit in fits:
        begin = fit.begin
        for epoch in (each for each in epochs if _within(each, fit)):
            found.append(epoch._replace(begin=begin))
            begin = epoch.end
    return found


def _in_a_step(time: float, steps: list[Span]) -> bool:
    """Whether a training step received the batch, not a trial before training. Steps are disjoint."""
    before = bisect.bisect_right(steps, time, key=lambda step: step.begin)
    return before > 0 and time <= steps[before - 1].end


def _buckets(timed: list[dict[str, Any]]) -> dict[int, list[Bucket]]:
    """The buckets by track. The parts of a bucket follow it in the file."""
    tracks: dict[int, list[Bucket]] = {}
    for event in timed:
        if event["cat"] == "bucket":
            end = _span(event).end
            tracks.setdefault(event["tid"], []).append(Bucket(end, end, end))
        elif event["cat"] == "fill":
            tracks[event["tid"]][-1] = tracks[event["tid"]][-1]._replace(full=_span(event).end)
        elif event["name"] == "wait for gradients of other ranks":
            tracks[event["tid"]][-1] = tracks[event["tid"]][-1]._replace(all_full=_span(event).end)
    return tracks


def _span(event: dict[str, Any]) -> Span:
    return Span(event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6, event["name"])


def _within(inner: Span, outer: Span) -> bool:
    return outer.begin <= inner.begin and inner.end <= outer.end + 1e-6
