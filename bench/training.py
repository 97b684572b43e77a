"""Compares training on one node with processes that do not communicate and with plain Keras.

Starts every row of bench/rows.py afresh in each round, and compares rows within a round only. Two ranks and the silent
processes take turns of about a second (bench/turns.py), and are compared within each cycle of turns. The reference of
two ranks is the fastest of the silent rows. Prints best, median and worst ratio over the rounds beside their goals.
Writes everything as JSON, and table.md beside it if the run counts. It is "noisy" and does not count if its silent
rows, compared in turns, differ by 3 % between rounds, or if others used more than 2 % of the CPU in a round.

    python bench/training.py --net mlp --rows silent "2 ranks" --rounds 3
    python bench/training.py --read build/bench/training.json --compare old.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import judge
import machine
import processes
import rows
import tables
import turns
from libraries import BUILD, say
from processes import Command

HERE = Path(__file__).parent


def commands(row: rows.Row, net: str, options: argparse.Namespace) -> list[Command]:
    """Returns the command of each process of a row."""
    cores = sorted(os.sched_getaffinity(0))
    if row.mode == "copy":
        script = [str(HERE / "floor.py"), *(["--seconds=0.02"] if options.tiny else [])]
    else:
        script = [str(HERE / "train_worker.py"), net, row.mode, *row.subjects(net), f"--size={row.size}"]
        script += ["--tiny"] if options.tiny else []
        script += ["--in-turns", *row.in_turns(net)]
    if row.starter == "launcher":
        start = processes.launcher(row.processes, *options.launcher.split())
        return [Command([*start, *script], set(cores[: row.cores]))]
    found = []
    for rank in range(row.processes):
        its_cores = {cores[(rank * row.cores + core) % min(2, len(cores))] for core in range(row.cores)}
        place = [] if row.mode == "copy" else [f"--rank={rank}"]
        found.append(Command([sys.executable, *script, *place], its_cores))
    return found


def alone(row: rows.Row, net: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Returns {subject: numbers} of the slowest process, or of all together for memory."""
    weigh = row.processes if "memory" in row.subjects(net) else 0
    done = processes.run(commands(row, net, options), f"{net}, {row.name}", weigh)
    if weigh:
        return {"memory": [float(done.memory)]}
    return judge.slowest(done.outputs, largest=row.mode != "copy")


def one_round(number: int, options: argparse.Namespace) -> dict[str, Any]:
    """Returns what the rows measured, the seconds that each took, and the part of the CPU that others used."""
    cores = os.sched_getaffinity(0)
    measured: dict[str, Any] = {net: {} for net in options.net}
    took: dict[str, Any] = {net: {} for net in options.net}
    before = processes.usage(cores)
    for net in options.net:
        chosen = [row for row in rows.ROWS if row.subjects(net) and row.name in options.rows]
        first = number % max(1, len(chosen))
        chosen = chosen[first:] + chosen[:first]  # so that no row is always the first
        in_turns = {row.name: (commands(row, net, options), row.processes) for row in chosen if row.in_turns(net)}
        say(f"round {number + 1} of {options.rounds}: {net}, {len(in_turns)} rows in turns")
        for name, played in turns.play(in_turns, net).items():
            measured[net][name], took[net][name] = judge.slowest(played.outputs), played.seconds
        for row in chosen:
            if row.name not in in_turns:
                say(f"round {number + 1} of {options.rounds}: {net}, {row.name}")
                began = time.monotonic()
                measured[net][row.name] = alone(row, net, options)
                took[net][row.name] = time.monotonic() - began
    after = processes.usage(cores)
    others, seconds = processes.strangers(before, after, min(2, len(cores))), after.now - before.now
    say(f"round {number + 1} took {seconds:.0f} s; others used {others:.1%} of the CPU")
    return {"strangers": others, "seconds": seconds, "turns": True, "measured": measured, "took": took}


def all_rounds(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns fewer rounds than asked for if one more would end too late."""
    began, rounds, longest = time.monotonic(), [], 0.0
    for number in range(options.rounds):
        if number and time.monotonic() + longest > began + 60 * options.minutes:
            say(f"no more rounds: {number} took {(time.monotonic() - began) / 60:.0f} minutes")
            break
        rounds.append(one_round(number, options))
        longest = max(longest, rounds[-1]["seconds"])
    return rounds


def conclude(result: dict[str, Any]) -> None:
    """Adds the ratios, the floor and the noise to a result that has rounds."""
    run = result["rounds"]
    result["ratios"], result["floor"], result["noise"] = judge.judge(run), judge.mlp_floor(run), judge.noise(run)
    if result.get("launcher"):
        result["noise"].append(f"options of the launcher: {result['launcher']}")
    if result["tiny"]:
        result["noise"].append("few steps: only that it runs means anything")


def show(result: dict[str, Any]) -> None:
    run = result["rounds"]
    print("\nmilliseconds of a step, medians of the rounds:")
    for (net, row), seconds in judge.steps(run).items():
        print(f"{net:9} {row:24} {1e3 * statistics.median(seconds):8.2f}")
    print(f"\nratios within a round, over {len(run)} rounds (in brackets: the goal of the worst):")
    print(tables.text(result["ratios"]))
    if result["floor"]:
        print(tables.floor(result["floor"]))
    print(f"\n{tables.verdict(result['noise'])}", flush=True)


def read(file: Path) -> dict[str, Any]:
    result = json.loads(file.read_text(encoding="utf-8"))
    if "rounds" not in result:
        sys.exit(f"{file} is not a result of bench/training.py")
    return result


def main() -> None:
    names = [row.name for row in rows.ROWS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=30, help="begin no round that would end later")
    parser.add_argument("--net", nargs="+", choices=rows.NETS, default=list(rows.NETS))
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names))
    parser.add_argument(
        "--launcher", default="", metavar="OPTIONS", help="for tarantella, such as --fusion-threshold=0"
    )
    parser.add_argument("--tiny", action="store_true", help="few steps, to see that everything runs")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="an older JSON file: say what got slower")
    parser.add_argument("--read", type=Path, metavar="JSON", help="show this result instead of measuring")
    parser.add_argument("--json", type=Path, default=BUILD / "training.json")
    options = parser.parse_args()
    processes.exit_on_signals()
    old = read(options.compare) if options.compare else None
    if options.read:
        result = read(options.read)
    else:
        BUILD.mkdir(parents=True, exist_ok=True)
        result = {"machine": machine.describe(), "tiny": options.tiny, "launcher": options.launcher}
        result["versions"] = machine.versions("tarantella", "tensorflow", "tensorflow-cpu", "keras", "numpy")
        machine.warn_if_busy(result["machine"])
        result["rounds"] = all_rounds(options)
    conclude(result)
    show(result)
    if not options.read:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
        table = options.json.with_name("table.md")
        if result["noise"]:
            table.unlink(missing_ok=True)
        else:
            table.write_text(tables.markdown(result), encoding="utf-8")
    if old is not None:
        lines = judge.slower(old["ratios"], result["ratios"]) or ["nothing"]
        doubt = " (a run was noisy, so this means little)" if old["noise"] or result["noise"] else ""
        print("\n".join([f"\nslower than {options.compare}{doubt}:", *lines]), flush=True)


if __name__ == "__main__":
    main()
