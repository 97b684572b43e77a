"""Training steps of two ranks beside those of two silent processes: what does talking cost?

The ceiling is two processes on the same cores, with the same input pipeline and settings, that do not communicate;
the slower of the two counts. Variants are interleaved, so that a noisy machine hits all of them alike, and only
ratios within one run mean anything. Minimum and median over rounds and epochs; everything is stored as JSON.

    python bench/train_step.py --net lenet5 mlp --threshold 0 1024 4096
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

WORKER = Path(__file__).with_name("train_worker.py")
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
STEPS = {"lenet5": 200, "resnet20": 12, "mlp": 20}


def slowest(folder: Path) -> list[float]:
    """By epoch: the slower process's seconds a step."""
    ranks = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return [max(steps) for steps in zip(*ranks, strict=True)]


def run(net: str, ranks: int, threshold: int | None, epochs: int) -> list[float]:
    """Seconds a step: of silent processes if threshold is None, else of ranks that fuse `threshold` KB."""
    with tempfile.TemporaryDirectory() as folder:
        script = [str(WORKER), net, "--steps", str(STEPS[net]), "--epochs", str(epochs), "--output", folder]
        environment = {**os.environ, **ENVIRONMENT}
        if threshold is None:
            commands = [[sys.executable, *script, "--silent", str(rank), str(ranks)] for rank in range(ranks)]
        else:
            launcher = str(Path(sys.executable).with_name("tarantella"))
            fusion = ["--fusion-threshold", str(threshold)] if threshold >= 0 else []
            commands = [[launcher, "-n", str(ranks), "--no-gpu", *fusion, "--", *script]]
        processes = [subprocess.Popen(command, env=environment) for command in commands]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit(f"{net} with threshold {threshold} failed; see above")
        return slowest(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--threshold", nargs="+", type=int, default=[-1], help="KB; -1: the default")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("build/bench/train_step.json"))
    options = parser.parse_args()
    results: dict[str, dict[str, list[float]]] = {}
    for net in options.net:
        variants = {"silent": None, **{f"fusion {t if t >= 0 else 'default'}": t for t in options.threshold}}
        steps: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(options.rounds):
            for name, threshold in variants.items():
                steps[name] += run(net, options.ranks, threshold, options.epochs)
        results[net] = steps
        ceiling = (min(steps["silent"]), statistics.median(steps["silent"]))
        for name, seconds in steps.items():
            least, middle = min(seconds), statistics.median(seconds)
            print(
                f"{net:9} {name:15} {least * 1e3:8.2f} / {middle * 1e3:8.2f} ms a step"
                f"   of the ceiling: {ceiling[0] / least:.3f} / {ceiling[1] / middle:.3f}",
                flush=True,
            )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
