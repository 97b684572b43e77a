"""Writes the results of `make bench` as one self-contained page, build/bench/report.html.

python bench/report.py --folder build/bench
"""

from __future__ import annotations

import argparse
import html
import io
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from libraries import BUILD
from matplotlib.figure import Figure

mpl.rcParams["svg.fonttype"] = "none"
STYLE = """body { font: 15px/1.5 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
th, td { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
svg { max-width: 100%; height: auto } .met { color: #060 } .missed { color: #a00 } small { color: #666 }"""
KINDS = ("minimum", "median")
BUSY = 1.0


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


def allreduce_plot(summary: dict[str, Any]) -> str:
    figure = Figure(figsize=(9, 5.5))
    axes = figure.subplots()
    for name, sizes in summary.items():
        ours, limit = name.startswith("tarantella"), name in ("memcpy", "limit")
        style = {"linewidth": 2.5 if ours else 1.2, "linestyle": ":" if limit else "-", "marker": "o", "markersize": 3}
        axes.loglog([int(size) for size in sizes], [row["minimum"] for row in sizes.values()], label=name, **style)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="bytes", ylabel="microseconds (minimum)")
    axes.grid(alpha=0.3)
    axes.legend()
    return svg(figure)


def allreduce(result: dict[str, Any]) -> str:
    summary = result["summary"]
    sizes = sorted({int(size) for row in summary.values() for size in row})
    lines = [[f"{size:,}", *(both(row.get(str(size), {})) for row in summary.values())] for size in sizes]
    goals = []
    for goal in result["goals"]:
        cells = []
        for kind in KINDS:
            met, missed = goal[kind]["met"], goal[kind]["missed"]
            word = {True: "met", False: "missed", None: "not measured"}[met]
            where = ", ".join(f"{ratio} at {int(size):,}" for size, ratio in missed.items())
            cells.append(verdict(met, f"{word}{': ' if where else ''}{where}"))
        goals.append([html.escape(goal["goal"]), *cells])
    return f"""<h2>Allreduce</h2>
<p>Float32 sum over two processes, each on its own core, in microseconds: minimum / median of the slower one.</p>
{allreduce_plot(summary)}{table(["bytes", *summary], lines)}
{table(["goal", *KINDS], goals)}{origin(result)}"""


def training_plot(nets: dict[str, Any]) -> str:
    figure = Figure(figsize=(9, 3.5))
    axes = figure.subplots()
    bars = [
        (f"{net}\n{name}", row["share"]["median"], row.get("goal"))
        for net, result in nets.items()
        for name, row in result["summary"].items()
        if "share" in row
    ]
    for place, (_, share, goal) in enumerate(bars):
        axes.bar(place, share, color="#999" if goal is None else "#3a7" if share >= goal else "#c75")
        if goal is not None:
            axes.hlines(goal, place - 0.4, place + 0.4, color="#222")
    axes.set_xticks(range(len(bars)), [label for label, _, _ in bars], fontsize=8)
    axes.axhline(1, color="#888", linestyle=":")
    axes.set(ylabel="share of the ceiling (median)")
    return svg(figure)


def training(result: dict[str, Any]) -> str:
    lines = []
    for net, measured in result["nets"].items():
        for name, row in measured["summary"].items():
            share, goal = row.get("share"), row.get("goal")
            text = (
                "" if share is None else both(share) if goal is None else verdict(share["median"] >= goal, both(share))
            )
            lines.append([net, html.escape(name), both(row), row.get("ceiling", ""), text, str(goal or "")])
    return f"""<h2>Training</h2>
<p>Milliseconds per step, minimum / median, of the slower process. The ceiling of two ranks is two processes that do not
communicate, with the same input pipeline on the same cores. The ceiling of one rank is Keras without Tarantella. A line
marks the goal.</p>
{training_plot(result["nets"])}{table(["net", "row", "ms a step", "ceiling", "share of it", "goal"], lines)}
{origin(result)}"""


def cost_plot(costs: list[dict[str, Any]]) -> str:
    figure = Figure(figsize=(9, 3.5))
    axes = figure.subplots()
    parts = [cost["share"]["median"] / cost["goal"] for cost in costs]
    axes.bar(range(len(costs)), parts, color=["#3a7" if part <= 1 else "#c75" for part in parts])
    axes.set_xticks(range(len(costs)), [f"{cost['cost']}\n{cost['net']}" for cost in costs], fontsize=8)
    axes.axhline(1, color="#222")
    axes.set(ylabel="part of what is allowed (median)")
    return svg(figure)


def cost(result: dict[str, Any]) -> str:
    lines = []
    for each in result["costs"]:
        share = verdict(each["share"]["median"] <= each["goal"], both(each["share"]))
        parts = ", ".join(f"{number(value)} {html.escape(name)}" for name, value in each["parts"].items())
        lines.append([each["cost"], each["net"], share, str(each["goal"]), parts])
    return f"""<h2>Costs</h2>
<p>Evaluate and predict: the time of two ranks with one core each, as a share of the time of plain Keras on one core.
Metrics, and the comparison of the ranks' weights: as a share of a step. Minimum / median; parts are medians.</p>
{cost_plot(result["costs"])}{table(["cost", "net", "share", "goal", "parts"], lines)}{origin(result)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=BUILD, help="has the JSON files, and gets the page")
    folder = parser.parse_args().folder
    parts = []
    for name, render in (("allreduce", allreduce), ("train_step", training), ("cost", cost)):
        file = folder / f"{name}.json"
        if file.exists():
            parts.append(render(json.loads(file.read_text(encoding="utf-8"))))
    title = "Tarantella: benchmarks"
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    (folder / "report.html").write_text(f"{page}<h1>{title}</h1>{''.join(parts)}</html>\n", encoding="utf-8")
    print(f"[bench] {folder / 'report.html'}")


if __name__ == "__main__":
    main()
