"""Makes ratios of what bench/hosts.py measured. All functions are pure.

A round is {"sums": [rows with link, mpi, row, bytes and median], "training" and "start": {"ours", "alone"} in seconds}.
"""

from __future__ import annotations

import statistics
from typing import Any

from tables import MET

LARGE = 64 << 10
LEVEL = 0.95  # of MPI_Allreduce's time over ours, from LARGE on
STEP = 0.9  # of the silent step over ours
START = 1.0  # seconds more than plain Keras
BLOCKING, GRADIENTS = "Tarantella", "Tarantella, gradients"
IN_PLACE, OUT_OF_PLACE = "MPI_Allreduce", "MPI_Allreduce, out of place"
LIKE = {BLOCKING: IN_PLACE, GRADIENTS: OUT_OF_PLACE}  # which of MPI's sums reads and writes the same memory
PAIRS = [*LIKE.items(), (GRADIENTS, IN_PLACE)]
SIGNS = {"share": ">=", "extra": "<="}


def slowest(outputs: list[dict[str, list[float]]], subject: str) -> float:
    """Returns the number of the slowest process, of which the mean counts."""
    return max(statistics.mean(output[subject]) for output in outputs)


def _line(what: str, kind: str, goal: float | None, numbers: list[float]) -> dict[str, Any]:
    median = statistics.median(numbers)
    best, worst = (max, min) if kind == "share" else (min, max)
    met = None if goal is None else median >= goal if kind == "share" else median <= goal
    found = {"what": what, "kind": kind, "goal": goal, "rounds": numbers, "met": met}
    return found | {"best": best(numbers), "median": median, "worst": worst(numbers)}


def _shares(measured: dict[str, Any]) -> dict[tuple[str, str, str, str, int], float]:
    """Returns {(link, mpi, row, rival, bytes): the rival's time over that of the row}."""
    times = {(row["link"], row["mpi"], row["row"], row["bytes"]): row["median"] for row in measured["sums"]}
    return {
        (link, mpi, row, rival, size): times[link, mpi, rival, size] / time
        for row, rival in PAIRS
        for (link, mpi, name, size), time in times.items()
        if name == row and (link, mpi, rival, size) in times
    }


def ratios(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a line for each ratio that all rounds have: its numbers, its goal, and whether the median meets it."""
    found = []
    shares = [_shares(measured) for measured in rounds]
    for key in shares[0]:
        link, mpi, row, rival, size = key
        numbers = [each[key] for each in shares]
        goal = LEVEL if size >= LARGE and LIKE[row] == rival else None
        found.append(_line(f"{row}, {mpi}, {link}, {size} bytes, beside {rival}", "share", goal, numbers))
        found[-1] |= {"row": row, "rival": rival, "mpi": mpi, "link": link, "bytes": size}
    for part, kind, goal in (("training", "share", STEP), ("start", "extra", START)):
        pairs = [each[part] for each in rounds if part in each]
        if not pairs:
            continue
        numbers = [pair["alone"] / pair["ours"] if kind == "share" else pair["ours"] - pair["alone"] for pair in pairs]
        what = {"training": "a step of ResNet-20", "start": "seconds of the start beyond plain Keras's"}[part]
        found.append(_line(what, kind, goal, numbers))
    return found


def cells(lines: list[dict[str, Any]]) -> list[list[str]]:
    found = []
    for line in lines:
        goal = "" if line["goal"] is None else f"{SIGNS[line['kind']]} {line['goal']:g}"
        numbers = [f"{line[key]:.3f}" for key in ("best", "median", "worst")]
        found.append([line["what"], *numbers, goal, MET[line["met"]]])
    return found


def text(lines: list[dict[str, Any]]) -> str:
    table = [["", "best", "median", "worst", "goal", ""], *cells(lines)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in table)
