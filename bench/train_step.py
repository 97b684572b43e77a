"""Compares training steps: two ranks with two silent processes, and one rank with plain Keras.

Cost of communication: the ceiling of two ranks is two *silent* processes, which run plain Keras on the same cores with
the same input pipeline and settings but do not communicate. The slower one counts. A rank has less Python overhead per
step than Keras, so with a small network it may beat them. Another row therefore has silent processes that call their
steps as a rank does.

Cost without communication: the ceiling of one rank is plain Keras.

Rows are interleaved, so that noise affects all of them equally. Compare only ratios within one run. Prints minimum and
median over rounds and epochs, and writes everything as JSON.

    python bench/train_step.py --rows ranks --net lenet5 mlp --threshold 0 1024 4096
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import machine

WORKER = Path(__file__).with_name("train_worker.py")
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
STEPS = {"lenet5": 400, "resnet20": 12, "mlp": 20}
CEILING = {"lenet5": 0.95, "resnet20": 0.98, "mlp": 0.88}
ALONE = 0.98


class Row(NamedTuple):
    """One command per process, up to the name of the network; the row to compare with, and the least ratio."""

    commands: list[list[str]]
    mode: str
    silent: bool = False
    ceiling: str = ""
    goals: dict[str, float] | None = None


def launcher(ranks: int, *options: str) -> list[str]:
    """Returns the command that starts a script on `ranks` ranks."""
    program = os.environ.get("TARANTELLA_EXECUTABLE", str(Path(sys.executable).with_name("tarantella")))
    return [program, "-n", str(ranks), "--no-gpu", *options, "--"]


def rows(options: argparse.Namespace) -> dict[str, Row]:
    """Returns {name: row}; a ceiling comes before the rows that are compared with it."""
    ranks, alone = options.ranks, dict.fromkeys(STEPS, ALONE)
    found = {}
    if "ranks" in options.rows:
        found["silent"] = Row([[sys.executable]] * ranks, "silent", silent=True)
        found["silent, called alike"] = Row([[sys.executable]] * ranks, "dispatched", silent=True, ceiling="silent")
        for threshold in options.threshold:
            fusion = ["--fusion-threshold", str(threshold)] if threshold >= 0 else []
            name = f"{ranks} ranks" + (f", fusion {threshold} KB" if fusion else "")
            found[name] = Row([launcher(ranks, *fusion)], "tarantella", ceiling="silent", goals=CEILING)
    if "alone" in options.rows:
        found["plain Keras"] = Row([[sys.executable]], "plain")
        found["no launcher"] = Row([[sys.executable]], "tarantella", ceiling="plain Keras", goals=alone)
        found["-n 1"] = Row([launcher(1)], "tarantella", ceiling="plain Keras", goals=alone)
    return found


def outputs(commands: list[list[str]], what: str) -> list[Any]:
    """Runs processes side by side and returns the JSON files that they write into the folder --output."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        log, environment = folder / "log", {**os.environ, **ENVIRONMENT}
        with log.open("w") as out:
            processes = [
                subprocess.Popen([*command, f"--output={folder}"], env=environment, stdout=out, stderr=out)
                for command in commands
            ]
            codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit(f"{what} failed:\n{log.read_text(errors='replace')}")
        return [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")]


def run(name: str, row: Row, net: str, epochs: int) -> list[float]:
    """Returns the seconds per step of the slowest process, by epoch."""
    script = [str(WORKER), net, row.mode, f"--steps={STEPS[net]}", f"--epochs={epochs}"]
    commands = [[*command, *script] for command in row.commands]
    if row.silent:
        for rank, command in enumerate(commands):
            command += ["--silent", str(rank), str(len(commands))]
    return [max(steps) for steps in zip(*outputs(commands, f"{net}, {name}"), strict=True)]


def summarize(seconds: dict[str, list[float]], found: dict[str, Row], net: str) -> dict[str, dict[str, Any]]:
    """Returns for each row the milliseconds per step, the share of its ceiling, and the goal for that share."""
    kinds = {"minimum": min, "median": statistics.median}
    summary: dict[str, dict[str, Any]] = {}
    for name, row in found.items():
        result: dict[str, Any] = {kind: 1e3 * of(seconds[name]) for kind, of in kinds.items()}
        if row.ceiling:
            ceiling = summary[row.ceiling]
            result |= {"ceiling": row.ceiling} | ({"goal": row.goals[net]} if row.goals else {})
            result["share"] = {kind: ceiling[kind] / result[kind] for kind in kinds}
        summary[name] = result
    return summary


def show(net: str, summary: dict[str, dict[str, Any]]) -> None:
    for name, row in summary.items():
        text = f"{net:9} {name:24} {row['minimum']:8.2f} / {row['median']:8.2f} ms a step"
        if "share" in row:
            least, middle = row["share"].values()
            text += f"   of {row['ceiling']}: {least:.3f} / {middle:.3f}"
            text += f" (goal {row['goal']})" if "goal" in row else ""
        print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--rows", nargs="+", choices=["ranks", "alone"], default=["ranks", "alone"])
    parser.add_argument("--threshold", nargs="+", type=int, default=[-1], help="KB; -1: the default")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("build/bench/train_step.json"))
    options = parser.parse_args()
    where = machine.describe()
    machine.warn_if_busy(where)
    found = rows(options)
    nets = {}
    for net in options.net:
        seconds: dict[str, list[float]] = {name: [] for name in found}
        for number in range(1, options.rounds + 1):
            for name, row in found.items():
                print(f"[bench] {net}, round {number} of {options.rounds}: {name}", flush=True)
                seconds[name] += run(name, row, net, options.epochs)
        nets[net] = {"seconds": seconds, "summary": summarize(seconds, found, net)}
        show(net, nets[net]["summary"])
    options.json.parent.mkdir(parents=True, exist_ok=True)
    versions = machine.versions("tarantella", "tensorflow", "tensorflow-cpu", "keras", "numpy")
    options.json.write_text(json.dumps({"machine": where, "versions": versions, "nets": nets}, indent=1))


if __name__ == "__main__":
    main()
