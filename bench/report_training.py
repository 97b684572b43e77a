"""The part of the page about bench/training.py."""

from __future__ import annotations

import html
import statistics
from typing import Any

import judge
import tables
from matplotlib.figure import Figure
from page import STYLE_OF, number, origin, svg, table, verdict


def steps_plot(steps: dict[tuple[str, str], list[float]]) -> str:
    """Plots the milliseconds of a step, one dot for each row and round."""
    nets = list(dict.fromkeys(net for net, _ in steps))
    if not nets:
        return ""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    for axes, net in zip(figure.subplots(1, len(nets), squeeze=False)[0], nets, strict=True):
        rows = {row: seconds for (its_net, row), seconds in steps.items() if its_net == net}
        for place, seconds in enumerate(rows.values()):
            axes.plot([1e3 * each for each in seconds], [place] * len(seconds), "o", color="#37a", alpha=0.5)
        axes.set_yticks(range(len(rows)), rows, fontsize=8)
        axes.invert_yaxis()
        axes.set(title=net, xlabel="ms a step")
        axes.grid(alpha=0.3)
    return svg(figure)


def ratios_plot(lines: list[dict[str, Any]], label: str) -> str:
    """Plots the range and the median of ratios with goals, and the goals as bars across."""
    if not lines:
        return ""
    figure = Figure(figsize=(9, 0.8 + 0.27 * len(lines)))
    axes = figure.subplots()
    for place, line in enumerate(lines):
        color = STYLE_OF[line["met"]]
        axes.plot([line["minimum"], line["maximum"]], [place, place], color=color, linewidth=2)
        axes.plot(line["median"], place, "o", color=color)
        axes.vlines(line["goal"], place - 0.4, place + 0.4, color="#222")
    axes.set_yticks(range(len(lines)), [f"{line['net']}: {line['what']}" for line in lines], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=label)
    axes.grid(alpha=0.3)
    return svg(figure)


def steps_table(steps: dict[tuple[str, str], list[float]]) -> str:
    lines = []
    for (net, row), seconds in steps.items():
        kinds = [1e3 * of(seconds) for of in (min, statistics.median, max)]
        lines.append([net, html.escape(row), *map(number, kinds)])
    return table(["net", "row", "minimum", "median", "maximum"], lines)


def training(result: dict[str, Any]) -> str:
    run, ratios = result["rounds"], result["ratios"]
    steps = judge.steps(run)
    lines = [
        [*map(html.escape, cells[:-1]), verdict(line["met"], cells[-1])]
        for line, cells in zip(ratios, tables.cells(ratios), strict=True)
    ]
    with_goals = [line for line in ratios if line["goal"] is not None]
    shares = [line for line in with_goals if line["kind"] == "share"]
    others = [line for line in with_goals if line["kind"] != "share"]
    strangers = ", ".join(f"{measured['strangers']:.1%}" for measured in run)
    floor = f"<p>{html.escape(tables.floor(result['floor']))}</p>" if result["floor"] else ""
    state = html.escape(tables.verdict(result["noise"])).replace("\n", "<br>")
    return f"""<h2>Training on one node</h2>
<p>{verdict(not result["noise"], state)}</p>
<p>Others used {strangers} of the CPU. Each row was started afresh in each of {len(run)} rounds, and is compared with
others of its round. The reference of two ranks is the fastest of the silent rows, which do not communicate and take
turns with them. A share is the reference's time over the row's; times are the row's over the reference's. Memory is
what a rank has more than a silent process, over the bytes of its gradients. A line marks the goal of the median.</p>
{ratios_plot(shares, "share (more is better)")}{ratios_plot(others, "times (less is better)")}
{table(["net", "what", "best", "median", "worst", "goal (of the worst)", ""], lines)}{floor}
<h3>Milliseconds of a step</h3>
{steps_plot(steps)}{steps_table(steps)}{origin(result)}"""
