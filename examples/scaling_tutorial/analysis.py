#!/usr/bin/env python
"""Draws learning curves and the speed-up of runs of train_horovod.py.

python analysis.py results -o plots
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D


@dataclass(frozen=True)
class Run:
    """What a run has written to its history.npz."""

    name: str
    n_ranks: int
    epoch_seconds: np.ndarray
    history: dict[str, np.ndarray]

    @property
    def seconds(self) -> float:
        """The mean time of an epoch, without the first if there are others: it also builds the graph."""
        return float(np.mean(self.epoch_seconds[1:] if len(self.epoch_seconds) > 1 else self.epoch_seconds))


def load_runs(*folders: str | Path) -> list[Run]:
    """Reads each history.npz in or below the folders, ordered by ranks. Raises FileNotFoundError if there is none."""
    runs = []
    for path in sorted({path for folder in folders for path in Path(folder).rglob("history.npz")}):
        with np.load(path) as stored:
            history = {key: stored[key] for key in stored.files}
        runs.append(Run(path.parent.name, int(history.pop("n_ranks")), history.pop("epoch_seconds"), history))
    if not runs:
        raise FileNotFoundError(f"no history.npz below {', '.join(map(str, folders))}: train first")
    return sorted(runs, key=lambda run: (run.n_ranks, run.name))


def speed_ups(runs: list[Run]) -> dict[int, float]:
    """Returns the speed-up by number of ranks: mean seconds an epoch of the fewest ranks, over those of each."""
    seconds = {n: np.mean([run.seconds for run in runs if run.n_ranks == n]) for n in sorted({r.n_ranks for r in runs})}
    fewest = min(seconds)
    return {n: float(fewest * seconds[fewest] / mean) for n, mean in seconds.items()}


def draw_learning_curves(runs: list[Run]) -> Figure:
    """Draws loss and accuracy over the epochs: solid for validation, dashed for training."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colors = {n: f"C{place}" for place, n in enumerate(sorted({run.n_ranks for run in runs}))}
    for axes, metric in zip(panels, ("loss", "accuracy"), strict=True):
        for run in runs:
            for key, style in ((metric, "--"), (f"val_{metric}", "-")):
                if key in run.history:
                    epochs = np.arange(1, len(run.history[key]) + 1)
                    axes.plot(epochs, run.history[key], style, color=colors[run.n_ranks])
        axes.set(xlabel="epoch", ylabel=metric)
        axes.xaxis.get_major_locator().set_params(integer=True)
    lines = [Line2D([], [], color=color) for color in colors.values()]
    axes.legend(lines, [f"{n} rank{'s' if n > 1 else ''}" for n in colors])
    return figure


def draw_speed_up(runs: list[Run]) -> Figure:
    """Draws the speed-up over the number of ranks, beside the ideal."""
    measured = speed_ups(runs)
    ranks = list(measured)
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.plot(ranks, ranks, "--", color="gray", label="ideal")
    axes.plot(ranks, list(measured.values()), "o-", label="measured")
    axes.set(xlabel="ranks", ylabel="speed-up", xticks=ranks)
    axes.legend()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", help="the output folders of runs, or a folder above them")
    parser.add_argument("-o", "--output", type=Path, default=Path("plots"), help="where to write PNGs (%(default)s)")
    args = parser.parse_args()
    try:
        runs = load_runs(*args.folders)
    except FileNotFoundError as error:
        raise SystemExit(f"analysis.py: {error}") from None
    args.output.mkdir(parents=True, exist_ok=True)
    draw_learning_curves(runs).savefig(args.output / "learning_curves.png", dpi=100)
    draw_speed_up(runs).savefig(args.output / "speed_up.png", dpi=100)

    factors = speed_ups(runs)
    print(f"{'run':32} ranks  s/epoch  speed-up  best val. accuracy")
    for run in runs:
        best = max(run.history.get("val_accuracy", [np.nan]))
        print(f"{run.name:32} {run.n_ranks:5}  {run.seconds:7.2f}  {factors[run.n_ranks]:8.2f}  {best:18.4f}")


if __name__ == "__main__":
    main()
