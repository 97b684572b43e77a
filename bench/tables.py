"""The results of bench/training.py as text for the terminal and as Markdown."""

from __future__ import annotations

from typing import Any

HEAD = ["", "", "best", "median", "worst", "goal", ""]
SIGNS = {"share": ">=", "times": "<=", "extra": "<="}
MET = {True: "met", False: "MISSED", None: ""}


def goal(line: dict[str, Any]) -> str:
    """Returns the goal of the median and, in brackets, that of every round."""
    if line["goal"] is None:
        return ""
    limit = "" if line["limit"] is None else f" ({line['limit']:g})"
    return f"{SIGNS[line['kind']]} {line['goal']:g}{limit}"


def cells(ratios: list[dict[str, Any]]) -> list[list[str]]:
    lines = []
    for line in ratios:
        numbers = [f"{line[key]:.3f}" for key in ("best", "median", "worst")]
        lines.append([line["net"], line["what"], *numbers, goal(line), MET[line["met"]]])
    return lines


def text(ratios: list[dict[str, Any]]) -> str:
    lines = [HEAD, *cells(ratios)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def floor(found: dict[str, float]) -> str:
    least, share, reached = 1e3 * found["seconds"], found["share of silent"], found["reached"]
    return (
        f"floor of the MLP on 2 ranks: {least:.1f} ms, {share:.3f} of the silent step, at"
        f" {found['bandwidth'] / 1e9:.1f} GB/s read and written by each core; the ranks reach {reached:.3f} of it"
    )


def verdict(noise: list[str]) -> str:
    return "\n".join(["noisy: this run does not count", *(f"  {reason}" for reason in noise)]) if noise else "quiet"


def markdown(result: dict[str, Any]) -> str:
    """Returns the ratios with goals as a table for the README."""
    machine = result["machine"]
    rounds = len(result["rounds"])
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['date'][:10]}; {rounds} rounds.",
        "",
        "| network | what | best | median | worst | goal |",
        "|---|---|---|---|---|---|",
    ]
    with_goals = [line for line in result["ratios"] if line["goal"] is not None]
    lines += [f"| {' | '.join(line[:-1])} |" for line in cells(with_goals)]
    if result["floor"]:
        lines += ["", f"The {floor(result['floor'])}."]
    return "\n".join(lines) + "\n"
