"""Measures the cost of evaluate and predict, of checking arrays, of metrics, and of comparing weights.

Goal for evaluate and predict: two ranks with one core each take at most 0.6 of the time of plain Keras on one core, for
the same data in the same global batches. The two kinds of process take turns. Compare only ratios within one run.

Goal for arrays: ranks compare every value of --bytes of them, before the first step of a call, in less than 3 % of the
time of an epoch over them.

Goals for training: metrics take less than 1 % of a step of LeNet-5, and comparing weights less than 0.1 % of a step.
Steps vary by more than that, so the ranks time Tarantella's part of a step themselves. Where ranks wait for each
other, the last one to arrive counts, because the others would wait for it in the next step anyway.

- Metrics: the exchange at the end of an epoch, divided by its steps, and the operations that hooks add to a step.
- Weights: a comparison, which is the same at the end of an epoch, divided by the steps between two within an epoch, and
  the counting of steps.

    python bench/cost.py --train lenet5 --rounds 1
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
from libraries import BUILD, say
from processes import Command, launcher, run

STEPS = {"lenet5": 400, "resnet20": 12, "mlp": 20}
WORKER = Path(__file__).with_name("cost_worker.py")
BYTES_OF_A_RANK = {"lenet5": 64 * 28 * 28 * 4, "resnet20": 32 * 32 * 32 * 3 * 4, "mlp": 32 * 2048 * 4}  # in a batch
BATCHES = 156  # of 64 rows: the test set of CIFAR-10, for which ResNet-20 was designed
INFERENCE = 0.6
METRICS = {"lenet5": 0.01}
ARRAYS = 0.03
WEIGHTS = 0.001
KINDS: dict[str, Callable[[list[float]], float]] = {"minimum": min, "median": statistics.median}


def measure(
    net: str, modes: dict[str, list[str]], steps: int, repeat: int, options: argparse.Namespace
) -> dict[str, list[Any]]:
    """Returns {mode: rounds}, the measurements of all processes. `modes` has the first words of each mode's command."""
    found: dict[str, list[Any]] = {mode: [] for mode in modes}
    for number in range(1, options.rounds + 1):
        for mode, start in modes.items():
            what = f"{net}, {mode}"
            say(f"{what}: round {number} of {options.rounds}")
            script = [str(WORKER), net, mode, f"--steps={steps}", f"--repeat={repeat}", f"--ranks={options.ranks}"]
            found[mode].append(run([Command([*start, *script])], what).outputs)
    return found


def slowest(processes: list[Any], key: str) -> list[float]:
    return [max(each) for each in zip(*(process[key] for process in processes), strict=True)]


def last_to_come(processes: list[Any], key: str) -> list[float]:
    return [min(each) for each in zip(*(process[key] for process in processes), strict=True)]


def inference(net: str, measured: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Returns the costs of evaluate and predict."""
    costs = []
    for call in ("evaluate", "predict"):
        seconds = {mode: [s for each in rounds for s in slowest(each, call)] for mode, rounds in measured.items()}
        share = {kind: of(seconds["ranks"]) / of(seconds["alone"]) for kind, of in KINDS.items()}
        parts = {f"ms {mode}": 1e3 * statistics.median(each) for mode, each in seconds.items()}
        costs.append({"cost": call, "net": net, "goal": INFERENCE, "share": share, "parts": parts})
    return costs


def arrays(processes: list[Any], steps: int) -> dict[str, float]:
    """Returns the share of an epoch in one round, and its parts."""
    epoch = steps * statistics.median(slowest(processes, "steps"))
    check = statistics.median(slowest(processes, "check"))
    return {"share": check / epoch, "s an epoch": epoch, "ms to check": 1e3 * check}


def metrics(processes: list[Any], steps: int) -> dict[str, float]:
    """Returns the share of a step in one round, and its parts."""
    step = statistics.median(slowest(processes, "steps"))
    update = max(process["update"] for process in processes)
    combine = statistics.median(last_to_come(processes, "combine"))
    return {
        "share": (update + combine / steps) / step,
        "ms a step": 1e3 * step,
        "us in every step": 1e6 * update,
        f"us after {steps} steps": 1e6 * combine,
    }


def weights(processes: list[Any]) -> dict[str, float]:
    """Returns the same as `metrics`, for comparing weights."""
    step = statistics.median(slowest(processes, "steps"))
    count = max(process["count"] for process in processes)
    compare, interval = statistics.median(last_to_come(processes, "compare")), processes[0]["interval"]
    return {
        "share": (count + compare / interval) / step,
        "ms a step": 1e3 * step,
        "us in every step": 1e6 * count,
        "us a comparison": 1e6 * compare,
        "steps between two": interval,
    }


def over_rounds(cost: str, net: str, goal: float, rounds: list[dict[str, float]]) -> dict[str, Any]:
    by_name = {name: [each[name] for each in rounds] for name in rounds[0]}
    shares = by_name.pop("share")
    return {
        "cost": cost,
        "net": net,
        "goal": goal,
        "share": {kind: of(shares) for kind, of in KINDS.items()},
        "parts": {name: statistics.median(values) for name, values in by_name.items()},
    }


def training(net: str, measured: list[Any], steps: int) -> list[dict[str, Any]]:
    """Returns the costs of comparing weights and, if this network has a goal for them, of metrics."""
    costs = [over_rounds("weights", net, WEIGHTS, [weights(each) for each in measured])]
    if net in METRICS:
        costs.append(over_rounds("metrics", net, METRICS[net], [metrics(each, steps) for each in measured]))
    return costs


def show(cost: dict[str, Any]) -> None:
    shares = " / ".join(f"{cost['share'][kind]:.5f}" for kind in KINDS)
    parts = ", ".join(f"{value:.4g} {name}" for name, value in cost["parts"].items())
    print(f"{cost['cost']:9} {cost['net']:9} {shares} (goal {cost['goal']})   {parts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infer", nargs="*", choices=STEPS, default=["resnet20"], help="networks to evaluate")
    parser.add_argument("--arrays", nargs="*", choices=STEPS, default=["lenet5"], help="networks to train on --bytes")
    parser.add_argument("--bytes", type=float, default=600e6, help="of arrays")
    parser.add_argument("--train", nargs="*", choices=STEPS, default=list(STEPS), help="networks to train")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=3, help="of evaluate and of predict; the first is left out")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of an epoch and of a call; the default differs by network")
    parser.add_argument("--json", type=Path, default=BUILD / "cost.json")
    options = parser.parse_args()
    where = machine.describe()
    machine.warn_if_busy(where)
    ranks = launcher(options.ranks)
    costs, raw = [], []
    for net in options.infer:
        modes = {"alone": [sys.executable], "ranks": ranks}
        measured = measure(net, modes, options.steps or BATCHES, options.calls, options)
        costs += inference(net, measured)
        raw.append({"net": net, **measured})
    for net in options.arrays:
        steps = options.steps or int(options.bytes / (options.ranks * BYTES_OF_A_RANK[net]))
        measured = measure(net, {"arrays": ranks}, steps, 1, options)
        costs.append(over_rounds("arrays", net, ARRAYS, [arrays(each, steps) for each in measured["arrays"]]))
        raw.append({"net": net, **measured})
    for net in options.train:
        steps = options.steps or STEPS[net]
        measured = measure(net, {"train": ranks}, steps, options.epochs, options)
        costs += training(net, measured["train"], steps)
        raw.append({"net": net, **measured})
    print("\nshares as minimum / median, of a step or, for evaluate and predict, of one process's time; median parts:")
    for cost in costs:
        show(cost)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    versions = machine.versions("tarantella", "tensorflow", "tensorflow-cpu", "keras", "numpy")
    result = {"machine": where, "versions": versions, "costs": costs, "measured": raw}
    options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
