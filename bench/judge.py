"""Makes ratios of what a run measured, says whether the run counts, and what got slower since another one.

A run is a list of rounds: {"strangers": part of the CPU, "turns": whether rows took turns, "measured": {net: {row:
{subject: [numbers]}}}}. Where rows took turns, it is a number for each turn. All functions are pure.
"""

from __future__ import annotations

import statistics
from typing import Any

import rows
from floor import floor
from rows import Ratio

Round = dict[str, Any]

SPREAD = 0.03  # over the rounds, of a silent row in parts of the other one
STRANGERS = 0.02


def slowest(processes: list[dict[str, list[float]]], largest: bool = True) -> dict[str, list[float]]:
    """Returns for each subject the numbers of the process whose median is the largest, or the least."""
    choose = max if largest else min
    return {
        subject: choose((process[subject] for process in processes), key=statistics.median) for subject in processes[0]
    }


def slowness(measured: dict[str, Any], net: str, subject: str) -> list[float]:
    """Returns the time that rows took in each cycle of turns, in parts of what they usually took in this round."""
    turns = [
        measured[row.name][subject]
        for row in rows.ROWS
        if row.takes_turns(net, subject) and subject in measured.get(row.name, {})
    ]
    usual = [statistics.median(each) for each in turns]
    cycles = zip(*turns, strict=True)
    return [statistics.median(each / its for each, its in zip(cycle, usual, strict=True)) for cycle in cycles]


def value(measured: Round, net: str, row: str, subject: str, in_turns: bool = True) -> float | None:
    """Returns the median of what a row took in one round, or None if it was not measured.

    Of a row that took turns it is with the machine as fast in all cycles, unless `in_turns` says otherwise.
    """
    its_net = measured["measured"].get(net, {})
    numbers = its_net.get(row, {}).get(subject)
    if not numbers:
        return None
    if in_turns and measured.get("turns") and rows.named(row).takes_turns(net, subject):
        cycles = slowness(its_net, net, subject)
        return statistics.median(number / slow for number, slow in zip(numbers, cycles, strict=True))
    return statistics.median(numbers)


def steps(run: list[Round]) -> dict[tuple[str, str], list[float]]:
    """Returns {(net, row): seconds of a step in each round}."""
    found = {}
    for net, measured in run[0]["measured"].items():
        for row in measured:
            numbers = [value(each, net, row, "step") for each in run]
            if None not in numbers:
                found[net, row] = [number for number in numbers if number is not None]
    return found


def in_round(ratio: Ratio, measured: Round) -> float | None:
    """Returns a ratio within one round, or None if a row of it was not measured."""
    in_turns = all(rows.named(row).takes_turns(ratio.net, ratio.subject) for row in (ratio.row, *ratio.against))
    own = value(measured, ratio.net, ratio.row, ratio.subject, in_turns)
    others = [value(measured, ratio.net, row, ratio.subject, in_turns) for row in ratio.against]
    if own is None or None in others:
        return None
    best = min(other for other in others if other is not None)
    if ratio.kind == "extra":
        return (own - best) / ratio.unit
    return best / own if ratio.kind == "share" else own / best


def silent_rows(run: list[Round], net: str) -> list[float]:
    """Returns the step of one silent row in parts of the other's, in each round that has both."""
    found = []
    for measured in run:
        one, other = (value(measured, net, row, "step") for row in rows.SILENT)
        if one is not None and other is not None:
            found.append(one / other)
    return found


def summarize(ratio: Ratio, numbers: list[float]) -> dict[str, Any]:
    """Returns one line of the result. `met` is None for a ratio without goals."""
    more_is_better = ratio.kind == "share"
    median, worst = statistics.median(numbers), min(numbers) if more_is_better else max(numbers)

    def reaches(number: float, goal: float | None) -> bool:
        return goal is None or (number >= goal if more_is_better else number <= goal)

    met = None if ratio.goal is None else reaches(median, ratio.goal) and reaches(worst, ratio.limit)
    return {
        "what": ratio.what,
        "net": ratio.net,
        "kind": ratio.kind,
        "goal": ratio.goal,
        "limit": ratio.limit,
        "rounds": numbers,
        "minimum": min(numbers),
        "median": median,
        "maximum": max(numbers),
        "best": max(numbers) if more_is_better else min(numbers),
        "worst": worst,
        "met": met,
    }


def judge(run: list[Round], ratios: list[Ratio] | None = None) -> list[dict[str, Any]]:
    """Returns the ratios that all rounds have."""
    found = []
    for ratio in rows.RATIOS if ratios is None else ratios:
        numbers = [in_round(ratio, measured) for measured in run]
        if numbers and None not in numbers:
            found.append(summarize(ratio, [number for number in numbers if number is not None]))
    return found


def spread(numbers: list[float]) -> float:
    return (max(numbers) - min(numbers)) / statistics.median(numbers)


def noise(run: list[Round]) -> list[str]:
    """Returns why the run does not count; nothing if it does."""
    reasons = [
        f"round {number}: others used {measured['strangers']:.1%} of the CPU (allowed: {STRANGERS:.0%})"
        for number, measured in enumerate(run, 1)
        if measured["strangers"] > STRANGERS
    ]
    if (measured_ratios := len(judge(run))) < len(rows.RATIOS):
        reasons.append(f"only {measured_ratios} of {len(rows.RATIOS)} ratios were measured")
    if len(run) < 2:
        reasons.append("a single round does not show whether the silent rows agree")
    for net in rows.NETS:
        parts = silent_rows(run, net)
        if parts and (apart := spread(parts)) >= SPREAD:
            reasons.append(f"{net}: the ratio of the silent rows spreads by {apart:.1%} (allowed: below {SPREAD:.0%})")
    return reasons


def mlp_floor(run: list[Round]) -> dict[str, float] | None:
    """Returns the medians over the rounds of the MLP's floor, with the bandwidth in bytes per second of a core."""
    found = []
    for measured in run:
        silent, ranks = (value(measured, "mlp", row, "step") for row in ("silent", "2 ranks"))
        bandwidth = value(measured, "mlp", "copies", "copy")
        if silent is None or ranks is None or bandwidth is None:
            return None
        found.append(floor(silent, ranks, rows.MLP_BYTES, 2, bandwidth) | {"bandwidth": bandwidth})
    return {key: statistics.median(each[key] for each in found) for key in found[0]} if found else None


def _ranges(line: dict[str, Any]) -> tuple[float, float]:
    """Returns the range over the rounds, but no less than what the silent rows of a run may spread."""
    margin = SPREAD / 2 * abs(line["median"])
    return min(line["minimum"], line["median"] - margin), max(line["maximum"], line["median"] + margin)


def slower(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """Returns a line for each ratio of `new` that lies beyond that of `old` with all its rounds."""
    before = {(line["net"], line["what"]): line for line in old}
    found = []
    for line in new:
        was = before.get((line["net"], line["what"]))
        if was is None:
            continue
        (old_least, old_most), (least, most) = _ranges(was), _ranges(line)
        if most < old_least if line["kind"] == "share" else least > old_most:
            found.append(f"{line['net']}, {line['what']}: {was['median']:.3f} before, {line['median']:.3f} now")
    return found
