"""The rows of the table: one for each number of ranks and of cores a rank."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from .measure import COMPUTE, KINDS, Measured
from .runs import Run

HEAD = ["ranks", "cpus per task", "time (s)", "from", "to", "first epoch (s)", "later epochs (s)", "speed-up",
        "without first epoch", "utilisation (%)"]  # fmt: skip
MARK = "*"


@dataclass
class Row:
    """All runs on so many ranks with so many cores each."""

    ranks: int
    cpus: int
    crowded: bool  # ranks x cpus are more than the cores of this machine
    runs: list[Run] = field(default_factory=list)

    @property
    def failed(self) -> Run | None:
        return next((run for run in self.runs if run.error), None)

    @property
    def good(self) -> list[Measured]:
        """The figures of its runs, none if one has failed."""
        return [] if self.failed else [run.measured for run in self.runs if run.measured is not None]

    @property
    def usual(self) -> Measured:
        """The run with the median of the times; of an even number the shorter one."""
        return sorted(self.good, key=lambda each: each.fit)[(len(self.good) - 1) // 2]

    @property
    def name(self) -> str:
        return f"{self.ranks} rank{'s' * (self.ranks > 1)} x {self.cpus} cpu{'s' * (self.cpus > 1)}"

    @property
    def fit(self) -> float:
        return statistics.median(each.fit for each in self.good)

    @property
    def later(self) -> float | None:
        known = [each.later for each in self.good if each.later is not None]
        return statistics.median(known) if known else None


def base_of(row: Row, rows: Sequence[Row]) -> Row | None:
    """The row that a speed-up is relative to: the fewest ranks with as many cores each. None if nothing ran."""
    same = [each for each in rows if each.cpus == row.cpus and each.good]
    return min(same, key=lambda each: (each.crowded, each.ranks)) if same else None


def speed_up(row: Row, rows: Sequence[Row], later: bool = False) -> float | None:
    """The speed of a row divided by that of its base, in rows a second, or by time if the rows are not known.

    With `later`, without the first epoch.
    """
    base = base_of(row, rows)
    if base is None or not row.good:
        return None
    times = (base.later, row.later) if later else (base.fit, row.fit)
    work = (row.usual.later_rows, base.usual.later_rows) if later else (row.usual.rows, base.usual.rows)
    if times[0] is None or times[1] is None:
        return None
    return times[0] / times[1] * (work[0] / work[1] if work[0] and work[1] else 1.0)


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """The lines below `HEAD`. The line of a failed row ends with the reason."""
    lines = []
    for row in rows:
        line = [f"{row.ranks}{MARK * row.crowded}", str(row.cpus)]
        if row.failed:
            line.append(row.failed.failure)
        elif row.good:
            times = [each.fit for each in row.good]
            line += [_number(value, 2) for value in (row.fit, min(times), max(times), row.usual.first, row.later)]
            line += [_number(value, 2) for value in (speed_up(row, rows), speed_up(row, rows, later=True))]
            line.append(_number(100 * row.usual.share(COMPUTE), 0))
        else:
            line.append("not run")
        lines.append(line)
    return lines


def shares(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The head and the lines, one a rank, of the second table."""
    head = ["ranks", "cpus per task", "rank", *(f"{kind} (%)" for kind in KINDS)]
    lines = []
    for row in (row for row in rows if row.good):
        for rank, mine in enumerate(row.usual.shares):
            place = [f"{row.ranks}{MARK * row.crowded}", str(row.cpus), str(rank)]
            lines.append([*place, *(f"{100 * mine[kind]:.1f}" for kind in KINDS)])
    return head, lines


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def text(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table for the terminal. The last cell of a line that is shorter than the head may be wide."""
    whole = [head, *(line for line in lines if len(line) == len(head))]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    made = []
    for line in [head, *lines]:
        short = len(line) < len(head)
        done = [cell.rjust(width) for cell, width in zip(line, widths, strict=False)]
        made.append("  ".join([*done[:-1], line[-1]] if short else done).rstrip())
    return "\n".join(made)
