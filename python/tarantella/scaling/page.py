"""The page of `tarantella scaling`: a single HTML file, which is also well-formed XML and loads no other file.

The plots are SVG elements: measured and ideal speed-up, and the shares of each rank's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from . import table
from .measure import BETWEEN, COMMUNICATION, COMPUTE, INPUT, WAITING
from .table import MARK, Row, base_of, speed_up

_STYLE = """body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }
body { color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
th, td { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd }
.failed { color: #a00; text-align: left; overflow-wrap: anywhere } small { color: #666 }
.wide { overflow-x: auto } svg { display: block; max-width: 100%; min-width: 26em; height: auto }
code { overflow-wrap: anywhere }"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _LINE = 540, 320, 40, 50, 20  # of the axes; of a line of the legend
_LETTER = 7.2  # the width of a letter, or more
_FAILED = "×"
_LINES = ("#2a6fb0", "#c0563b", "#4c8c4a", "#8a5aa5", "#a5812c")
_COLOURS = {
    COMPUTE: "#5b8c5a",
    INPUT: "#f2d388",
    COMMUNICATION: "#c58fb0",
    WAITING: "#d9d9d9",
    BETWEEN: "#8fa9c5",
}


def page(rows: Sequence[Row], command: str, machine: str, notes: Sequence[str]) -> str:
    """The whole page. `notes` are the lines below the table, the last one the advice."""
    shares = ""
    if any(row.good for row in rows):
        shares = (
            f'<h2>Where the time of each rank goes</h2><div class="wide">{share_bars(rows)}</div>'
            f"{_table(*table.shares(rows))}"
        )
    words = "".join(f"<p>{escape(note)}</p>" for note in notes[:-1])
    return f"""<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>Scaling of {escape(command)}</title><style>{_STYLE}</style></head><body>
<h1>Scaling</h1><p><code>{escape(command)}</code></p><p><small>{escape(machine)}</small></p>
<div class="wide">{speed_ups(rows)}</div>
{_table(table.HEAD, table.cells(rows))}
{words}<p><b>{escape(notes[-1])}</b></p>
{shares}
</body></html>
"""


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    for line in lines:
        missing = len(head) - len(line)
        cells = [f"<td>{escape(cell)}</td>" for cell in line]
        if missing:
            cells[-1] = f'<td class="failed" colspan="{missing + 1}">{escape(line[-1])}</td>'
        rows.append("".join(cells))
    return f'<div class="wide"><table>{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'


def speed_ups(rows: Sequence[Row]) -> str:
    """Plots speed-up over ranks, with a line for each number of cores a rank and a dashed line for the ideal.

    Rows that do not fit the cores are hollow dots outside the lines, failed rows a cross at 0.
    """
    ideals, most = _ideals(rows), max(row.ranks for row in rows)
    legend = _legend(rows, any(len(points) > 1 for points in ideals))
    begin = _LINE * len(legend) + 30
    values = [value for row in rows for value in (speed_up(row, rows), speed_up(row, rows, later=True)) if value]
    top = 1.1 * max([1.0, *values, *(ideal for points in ideals for _, ideal in points)])
    right, bottom = _WIDTH - 10, begin + _HEIGHT - _BOTTOM

    def x(ranks: float) -> float:
        return _LEFT + (right - _LEFT) * ranks / (most * 1.05)

    def y(value: float) -> float:
        return bottom - (bottom - begin) * value / top

    parts = [_line(_LEFT, bottom, right, bottom, "#222"), _line(_LEFT, begin, _LEFT, bottom, "#222")]
    for place, (mark, words) in enumerate(legend):
        parts.append(f'<g transform="translate(10,{_LINE * place + 16})">{mark}{_text(40, 4, words)}</g>')
    free = _WIDTH + 20.0
    for ranks in sorted({row.ranks for row in rows}, reverse=True):
        words = f"{ranks}{MARK if all(row.crowded for row in rows if row.ranks == ranks) else ''}"
        reach = _LETTER * len(words) / 2
        if x(ranks) + reach + 4 < free:  # else the number would overlap the next one
            parts.append(_text(x(ranks), bottom + 18, words, "middle"))
            free = x(ranks) - reach
    for tick in _ticks(top):
        parts += [_line(_LEFT, y(tick), right, y(tick), "#eee"), _text(_LEFT - 8, y(tick) + 4, f"{tick:g}", "end")]
    parts.append(_text((_LEFT + right) / 2, bottom + _BOTTOM - 10, "ranks", "middle"))
    parts.append(_text(10, begin - 12, "speed-up"))
    for points in ideals:
        parts.append(_path([(x(ranks), y(ideal)) for ranks, ideal in points], "#222", dashed=True))
    for cpus, colour in _colours(rows).items():
        mine = [row for row in rows if row.cpus == cpus]
        for faint in (True, False):
            found = [(row, value) for row in mine if (value := speed_up(row, rows, later=faint)) is not None]
            line = [(x(row.ranks), y(value)) for row, value in found if not row.crowded]
            parts.append(_path(line, colour, faint=faint))
            for row, value in found:
                note = f"{row.name}: {value:.2f}" + (" without the first epoch" if faint else "")
                parts.append(_dot(x(row.ranks), y(value), colour, row.crowded, faint, note))
        parts += [_text(x(row.ranks), bottom - 2, _FAILED, "middle", "#a00") for row in mine if row.failed]
    return _svg(begin + _HEIGHT, "Speed-up over ranks", parts)


def _ideals(rows: Sequence[Row]) -> list[list[tuple[int, float]]]:
    """The ideal speed-up by ranks, a line for each base of a speed-up."""
    found: dict[int, set[tuple[int, float]]] = {}
    for row in rows:
        if not row.crowded and (base := base_of(row, rows)):
            found.setdefault(base.ranks, set()).add((row.ranks, row.ranks / base.ranks))
    return [sorted(points) for points in found.values()]


def _colours(rows: Sequence[Row]) -> dict[int, str]:
    """The colour of a line, by the cores of a rank."""
    return {cpus: _LINES[place % len(_LINES)] for place, cpus in enumerate(sorted({row.cpus for row in rows}))}


def _legend(rows: Sequence[Row], has_ideal: bool) -> list[tuple[str, str]]:
    """Marks, in 30 x 0 pixels, and their words."""
    ends = [(0.0, 0.0), (30.0, 0.0)]
    found = [(_path(ends, "#222", dashed=True), "ideal")] if has_ideal else []
    for cpus, colour in _colours(rows).items():
        each = f"{cpus} cpu{'s' * (cpus > 1)} per task"
        found += [(_path(ends, colour), each), (_path(ends, colour, faint=True), f"{each}, without first epoch")]
    if any(row.crowded and row.good for row in rows):
        found.append((_dot(15, 0, "#222", True, False, ""), f"{MARK} more than the cores of the machine"))
    if any(row.failed for row in rows):
        found.append((_text(15, 4, _FAILED, "middle", "#a00"), "failed"))
    return found


def share_bars(rows: Sequence[Row]) -> str:
    """Plots the shares of the time of each rank as a bar."""
    parts, height, left, legend = [], 34, 120.0, 10.0
    for kind, colour in _COLOURS.items():
        parts += [_box(legend, 6, 12, 12, colour, kind), _text(legend + 17, 16, kind)]
        legend += 37 + _LETTER * len(kind)
    for row in rows:
        for rank, mine in enumerate(row.usual.shares if row.good else ()):
            if rank == 0:
                parts.append(_text(left - 10, height + 12, row.name, "end"))
            begin = left
            for kind, colour in _COLOURS.items():
                width = (_WIDTH - left - 10) * mine[kind]
                note = f"{row.name}, rank {rank}: {kind} {100 * mine[kind]:.1f} %"
                parts.append(_box(begin, height, width, 15, colour, note))
                begin += width
            height += 18
        height += 6 if row.good else 0
    return _svg(height + 6, "Shares of the time of each rank", parts)


def _ticks(top: float) -> list[float]:
    step = next(step for step in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 500, 1000, 5000) if top / step <= 8)
    return [step * number for number in range(1, int(top / step) + 1)]


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="{_WIDTH}" height="{height:g}" fill="#fff" />{"".join(parts)}</svg>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" />'


def _path(points: Sequence[tuple[float, float]], colour: str, dashed: bool = False, faint: bool = False) -> str:
    if len(points) < 2:
        return ""
    style = ' stroke-dasharray="6 4"' * dashed + ' stroke-opacity="0.45"' * faint
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"{style} />'


def _dot(x: float, y: float, colour: str, hollow: bool, faint: bool, note: str) -> str:
    style = f'fill="{"#fff" if hollow else colour}" stroke="{colour}"' + ' opacity="0.5"' * faint
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {style}><title>{escape(note)}</title></circle>'


def _box(x: float, y: float, width: float, height: float, colour: str, note: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:g}" fill="{colour}">'
        f"<title>{escape(note)}</title></rect>"
    )


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
