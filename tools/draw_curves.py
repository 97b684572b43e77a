#!/usr/bin/env python3
"""Draws the curves of trainings from what they printed, for docs/tutorials/. Needs matplotlib.

tools/draw_curves.py curves.svg --metrics=loss,accuracy "one process=one.txt" "two ranks=two.txt"

Each file is the output of a program in which Keras's `fit` printed its epochs, with a progress bar or with verbose=2.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "curves"})

# Curves that coincide must all be seen, so the first is a broad line and the second has marks.
STYLES = (
    {"color": "#b9cfe8", "linewidth": 6},
    {"color": "#b5502f", "linewidth": 1.2, "marker": "o", "markersize": 4},
    {"color": "#3f7d3e", "linewidth": 1.2, "marker": "x", "markersize": 5},
)


def epochs(text: str) -> list[dict[str, float]]:
    """Returns the metrics of each epoch of training: those of its last line, or of the last state of its bar.

    Evaluations are told apart by their number of steps.
    """
    found: list[dict[str, float]] = []
    steps, begins = None, True
    for line in re.split(r"[\r\n\b]+", text):
        begins |= re.match(r"Epoch \d+/\d+", line) is not None
        end = re.match(r"(?:\x1b\S*?m)?(\d+)/\1\b.* - ", line)
        steps = steps or (end and end[1])
        if end and end[1] == steps:
            if "━" in line and not begins:
                found.pop()
            begins = False
            found.append({name: float(value) for name, value in re.findall(r"(\w+): (-?[\d.]+(?:e-?\d+)?)", line)})
    return found


def draw(runs: dict[str, list[dict[str, float]]], metrics: list[str]) -> Figure:
    figure = Figure(figsize=(4.6 * len(metrics), 3.2), layout="constrained")
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        for (name, run), style in zip(runs.items(), STYLES, strict=False):
            axes.plot(range(1, len(run) + 1), [epoch[metric] for epoch in run], label=name, **style)
        axes.set(xlabel="epoch", ylabel=metric.replace("_", " "))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path, help="the SVG to write")
    parser.add_argument("runs", nargs="+", metavar="NAME=FILE", help="what printed it, and what it printed")
    parser.add_argument("--metrics", default="loss", metavar="NAME,…", help="one panel each (default: loss)")
    args = parser.parse_args()
    runs, metrics = {}, args.metrics.split(",")
    for each in args.runs:
        name, _, file = each.partition("=")
        runs[name] = epochs(Path(file).read_text(encoding="utf-8", errors="replace"))
        missing = [metric for metric in metrics if not runs[name] or metric not in runs[name][0]]
        if missing:
            parser.error(f"{file} has no epochs with {', '.join(missing)}")
    if len(runs) > len(STYLES):
        parser.error(f"{len(runs)} trainings, but at most {len(STYLES)} can be told apart")
    draw(runs, metrics).savefig(args.picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
