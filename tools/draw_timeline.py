#!/usr/bin/env python3
"""Draws two training steps of a trace of `tarantella --timeline`, for docs/timeline.md. Needs matplotlib."""

from __future__ import annotations

import argparse
import json
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "timeline"})

COLOURS = {
    "step": "#c9d7ea",
    "fill": "#f2d388",
    "wait": "#e5e5e5",
    "sum": "#5b8c5a",
    "exchange": "#c58fb0",
}
LEGEND = {"step": "step", "fill": "bucket: fill", "wait": "bucket: wait for other ranks", "sum": "bucket: sum a slice"}


def draw(events: list[dict[str, Any]], first: int, out: str) -> None:
    """Draws steps `first` and `first` + 1 (from 0) of all ranks."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    hosts = {e["pid"]: e["args"]["name"].split(" on ")[0] for e in events if e["name"] == "process_name"}
    steps = sorted((e for e in events if e["name"] == "train step" and e["pid"] == 0), key=lambda e: e["ts"])
    begin = steps[first]["ts"]
    end = steps[first + 1]["ts"] + steps[first + 1]["dur"]
    margin = (end - begin) / 40
    shown = [
        e
        for e in events
        if e["ph"] in "Xi" and e["ts"] < end + margin and e["ts"] + e.get("dur", 0) > begin - margin
        if e["cat"] in (*COLOURS, "gradient")
    ]
    tracks = sorted({(e["pid"], e["tid"]) for e in shown})
    figure, axes = plt.subplots(figsize=(11, 0.42 * len(tracks) + 1.2))
    for event in shown:
        row = tracks.index((event["pid"], event["tid"]))
        start = (event["ts"] - begin) / 1000
        if event["cat"] == "gradient":
            axes.plot([start], [row], "|", color="#333333", markersize=11)
            continue
        axes.barh(row, event["dur"] / 1000, left=start, height=0.7, color=COLOURS[event["cat"]], edgecolor="#777777",
                  linewidth=0.3)  # fmt: skip
    axes.set_yticks(range(len(tracks)), [f"{hosts[track[0]]}: {names[track].split(': ')[-1]}" for track in tracks])
    axes.invert_yaxis()
    axes.set_xlim(-margin / 1000, (end - begin + margin) / 1000)
    axes.set_xlabel("ms")
    patches = [mpl.patches.Patch(color=COLOURS[each], label=label) for each, label in LEGEND.items()]
    marks = [plt.Line2D([], [], marker="|", color="#333333", linestyle="", markersize=11, label="gradient ready")]
    axes.legend(handles=[*patches, *marks], loc="lower center", bbox_to_anchor=(0.4, 1), ncols=5, frameon=False)
    figure.savefig(out, bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace")
    parser.add_argument("out")
    parser.add_argument("--step", type=int, default=4, help="the first of two steps to draw, from 0 (default: 4)")
    arguments = parser.parse_args()
    with open(arguments.trace, encoding="utf-8") as file:
        draw(json.load(file)["traceEvents"], arguments.step, arguments.out)


if __name__ == "__main__":
    main()
