"""Explains the figures in words: the kind of scaling that was measured, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence

from .measure import BETWEEN, COMMUNICATION, INPUT, WAITING
from .table import Row, base_of, speed_up

_SAME = 0.02  # batches that differ by less count as equal: the last one of an epoch may be smaller
_ENOUGH = 0.9  # of the ideal speed-up
_LITTLE = 0.05  # of the time

_LIMITS = {  # and the cure
    INPUT: (
        "input",
        "prefetch and cache the dataset, give its map num_parallel_calls and a rank more cores (--cpus-per-rank)",
    ),
    COMMUNICATION: (
        "communication",
        "give each rank more rows a step (a larger batch), so that there are fewer sums for the same rows",
    ),
    WAITING: (
        "waiting for other ranks",
        "find with --timeline why the rank that waits least is slow: fewer cores, more rows, other work",
    ),
    BETWEEN: (
        "what happens between steps",
        "callbacks, validation, checkpoints and the ends of epochs take it: do them less often",
    ),
}


def kind(rows: Sequence[Row]) -> str:
    """Strong or weak scaling, by the batches of the script as measured."""
    measured = {row.ranks for row in rows if row.good}
    known = {row.ranks: batch for row in rows if row.good and (batch := row.usual.batch)}
    if len(measured) < 2:
        return "strong or weak scaling: only one number of ranks was measured"
    if len(known) < len(measured):
        return "strong or weak scaling: not known, since batches are missing in the timeline (as with jit_compile=True)"
    of_a_rank = [batch / ranks for ranks, batch in known.items()]
    batches = ", ".join(f"{batch:g} on {ranks}" for ranks, batch in sorted(known.items()))
    if _alike(list(known.values())):
        return f"strong scaling: the global batch stays at {next(iter(known.values())):g} rows, that of a rank shrinks"
    if _alike(of_a_rank):
        return f"weak scaling: a rank keeps {of_a_rank[0]:g} rows a step, the global batch grows ({batches})"
    return f"neither strong nor weak scaling: the rows of the global batch are {batches}"


def _alike(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _SAME * max(values)


def work(rows: Sequence[Row]) -> str:
    """A note if the runs trained different or unknown numbers of rows; else empty."""
    known = {row.ranks: trained for row in rows if row.good and (trained := row.usual.rows)}
    unknown = [row.name for row in rows if row.good and not row.usual.rows]
    if known and unknown:
        return f"the rows that {', '.join(unknown)} trained are not known, so their speed-up compares times only"
    if len(known) < 2 or _alike(list(known.values())):
        return ""
    return "the runs trained different numbers of rows, so the speed-up compares rows a second"


def base(rows: Sequence[Row]) -> str:
    """A note on the base of the speed-up if it is not one rank; else empty."""
    bases = {each.name for row in rows if row.good and (each := base_of(row, rows)) and each.ranks > 1}
    return f"no fewer ranks were measured: the speed-up is relative to {' and '.join(sorted(bases))}" if bases else ""


def advice(rows: Sequence[Row]) -> str:
    """The limit of the largest row that fits the cores, or else of the largest row, and the cure, in one line."""
    good = [row for row in rows if row.good]
    if not good:
        return "advice: no run has ended well; repair the script first (--verbose shows its output)"
    row = max(good, key=lambda each: (not each.crowded, each.ranks, each.cpus))
    found, first = row.usual, base_of(row, rows) or row
    gained = speed_up(row, rows, later=True) or speed_up(row, rows) or 1.0
    reached = gained / (row.ranks / first.ranks)
    losses = {kind: found.share(kind) for kind in _LIMITS}
    worst = max(losses, key=losses.__getitem__)
    start = max(0.0, (found.first - found.later) / found.fit) if found.first and found.later else 0.0
    line = f"advice for {row.name}: "
    if start > max(2 * _LITTLE, losses[worst]):
        return line + (
            f"the first epoch limits it: {100 * start:.0f} % of the time is its start (tracing, equal weights, full "
            "caches); train more epochs, or more rows, before you judge"
        )
    if losses[worst] > _LITTLE and (reached < _ENOUGH or losses[worst] > 2 * _LITTLE):
        limit, cure = _LIMITS[worst]
        return line + f"{limit} limits it: {100 * losses[worst]:.0f} % of the time; {cure}"
    if row is first:
        return line + (
            "ranks hardly wait, but one number of ranks does not show scaling: measure more (-n) that fit the cores"
        )
    if reached >= _ENOUGH:
        return line + f"nothing limits it: {100 * reached:.0f} % of the ideal speed-up; try more ranks"
    return line + (
        f"the computation itself: {100 * reached:.0f} % of the ideal speed-up, although ranks hardly wait; small "
        "batches on each rank, memory bandwidth or other programs on these cores slow it down"
    )
