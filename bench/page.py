"""The parts of the page that bench/report.py writes: plots, tables, and where the numbers come from."""

from __future__ import annotations

import html
import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.rcParams["svg.fonttype"] = "none"
STYLE = """body { font: 15px/1.5 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em }
body { color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
th, td { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
svg { max-width: 100%; height: auto } .words { display: block; text-align: left; white-space: normal }
.met { color: #060 } .missed { color: #a00 } small { color: #666 }"""
KINDS = ("minimum", "median")
BUSY = 1.0
STYLE_OF = {True: "#3a7", False: "#c75", None: "#999"}  # by whether a goal is met


def svg(figure: Figure) -> str:
    """Returns the figure as an element of the page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight")
    return "<svg" + text.getvalue().partition("<svg")[2]


def table(head: list[str], lines: list[list[str]]) -> str:
    """Returns an HTML table. The cells must be HTML already."""
    rows = ["".join(f"<td>{cell}</td>" for cell in line) for line in lines]
    top = "".join(f"<th>{cell}</th>" for cell in head)
    return f"<table><tr>{top}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def both(values: dict[str, float]) -> str:
    return " / ".join(number(values.get(kind)) for kind in KINDS)


def verdict(met: bool | None, text: str) -> str:
    style = {True: "met", False: "missed", None: ""}[met]
    return f'<span class="{style}">{text}</span>'


def origin(result: dict[str, Any]) -> str:
    """Returns a line about the machine and the versions."""
    machine = result["machine"]
    facts = [machine["date"], f"{machine['cores']} cores, {machine['processor']}", machine["memory"], machine["system"]]
    facts += [f"{package} {version}" for package, version in result["versions"].items()]
    text = f"<p><small>{html.escape(' · '.join(facts))}</small></p>"
    if machine["load"] > BUSY:
        text += f'<p class="missed">The machine was busy (load {machine["load"]:.1f}): these times mean little.</p>'
    return text
