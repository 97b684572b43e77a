"""Writes the results of `make bench` as one self-contained page, build/bench/report.html.

python bench/report.py --folder build/bench
"""

from __future__ import annotations

import argparse
import html
import json
from pathlib import Path
from typing import Any

from libraries import BUILD
from matplotlib.figure import Figure
from page import KINDS, STYLE, both, number, origin, svg, table, verdict
from report_hosts import hosts
from report_training import training


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
    kinds, goals = (*KINDS, "maximum"), []
    for goal in result["goals"]:
        cells = []
        for kind in kinds:
            if kind not in goal:
                cells.append("")
                continue
            met, missed = goal[kind]["met"], goal[kind]["missed"]
            word = {True: "met", False: "missed", None: "not measured"}[met]
            where = ", ".join(f"{ratio} at {int(size):,}" for size, ratio in missed.items())
            cells.append(verdict(met, f"{word}{': ' if where else ''}{where}"))
        goals.append([html.escape(goal["goal"]), *cells])
    return f"""<h2>Allreduce</h2>
<p>Float32 sum over two processes, each on its own core, in microseconds: minimum / median of the slower one.</p>
{allreduce_plot(summary)}{table(["bytes", *summary], lines)}
{table(["goal", *kinds], goals)}{origin(result)}"""


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
        lines.append([each["cost"], each["net"], share, str(each["goal"]), f'<span class="words">{parts}</span>'])
    return f"""<h2>Costs</h2>
<p>Evaluate and predict: the time of two ranks with one core each, as a share of the time of plain Keras on one core.
Metrics, and the comparison of the ranks' weights: as a share of a step. Minimum / median; parts are medians.</p>
{cost_plot(result["costs"])}{table(["cost", "net", "share", "goal", "parts"], lines)}{origin(result)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=BUILD, help="has the JSON files, and gets the page")
    folder = parser.parse_args().folder
    parts = []
    for name, render in (("allreduce", allreduce), ("training", training), ("hosts", hosts), ("cost", cost)):
        file = folder / f"{name}.json"
        if file.exists():
            parts.append(render(json.loads(file.read_text(encoding="utf-8"))))
    title = "Tarantella: benchmarks"
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    (folder / "report.html").write_text(f"{page}<h1>{title}</h1>{''.join(parts)}</html>\n", encoding="utf-8")
    print(f"[bench] {folder / 'report.html'}")


if __name__ == "__main__":
    main()
