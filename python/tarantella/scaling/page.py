"""The page of `tarantella scaling`: one file of HTML, which is also well-formed XML and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from . import plot, table
from .table import Row

_STYLE = """body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }
body { color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
th, td { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd }
.failed { color: #a00; text-align: left; overflow-wrap: anywhere } small { color: #666 }
.wide { overflow-x: auto } svg { display: block; max-width: 100%; min-width: 26em; height: auto }
code { overflow-wrap: anywhere }"""


def page(rows: Sequence[Row], command: str, machine: str, notes: Sequence[str]) -> str:
    """The whole page. `notes` are the lines below the table, the last one the advice."""
    shares = ""
    if any(row.good for row in rows):
        shares = (
            f'<h2>Where the time of each rank goes</h2><div class="wide">{plot.shares(rows)}</div>'
            f"{_table(*table.shares(rows))}"
        )
    words = "".join(f"<p>{escape(note)}</p>" for note in notes[:-1])
    return f"""<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>Scaling of {escape(command)}</title><style>{_STYLE}</style></head><body>
<h1>Scaling</h1><p><code>{escape(command)}</code></p><p><small>{escape(machine)}</small></p>
<div class="wide">{plot.speed_ups(rows)}</div>
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
