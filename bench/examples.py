"""Compares steps of the examples on two ranks with those of two silent processes, and says how long they await input.

In each round every example is started afresh twice: on two ranks with one core each, and as two processes of plain
Keras with one core each, with a rank's batch, which do not know of each other. The two jobs run in slices of seconds,
while the other one is stopped (bench/slices.py). A step is the mean over all epochs but the first, without what lies
between epochs, of the slower process. All figures come from the timelines of the jobs.
Prints a table in Markdown, and writes it to build/bench/examples.md beside the JSON file.

    python bench/examples.py --only lenet5 transformer --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import machine
import numpy as np
import processes
import slices
from judge import STRANGERS
from libraries import BUILD, ROOT, say
from processes import Command

from tarantella.scaling import trace
from tarantella.scaling.measure import INPUT, measured

SECONDS = 1800.0  # that a job may take alone
TIMELINE = "timeline.json"
GOAL, INPUT_GOAL = 1.05, 0.05


class Example(NamedTuple):
    """A program below examples/. Its arguments name {batch}, that of all ranks, {micro}, {epochs} and {data}."""

    program: str
    arguments: str
    row: str  # what a row is
    micro: int  # rows of a rank
    epochs: int
    tokens: int = 1  # of a row, where {batch} counts these
    slice: float = slices.SECONDS  # of the time that a job runs until the other one does; several steps


LONG = 8.0  # seconds, for steps of a second or two
RESNET = "--image_size=128 --batch_size={batch} --train_epochs={epochs}"
EXAMPLES = {
    "lenet5": Example("quick_start/model.py", "--batch_size={batch} --train_epochs={epochs}", "28 x 28", 64, 300),
    "image_classification": Example(
        "image_classification/train_imagenet_main.py",
        RESNET + " --synthetic_data --train_num_samples=288 --val_num_samples=1 --val_freq=99 --verbose=2",
        "128 x 128",
        16,
        3,
        slice=LONG,
    ),
    "resnet50": Example(
        "models/resnet/resnet50_tnt.py",
        RESNET + " --data_dir={data}/images --epochs_between_evals={epochs} --verbose=2",
        "128 x 128",
        16,
        3,
        slice=LONG,
    ),
    "transformer": Example(
        "models/transformer/transformer_tnt.py",
        "--data_dir={data}/numbers/data --param_set=tiny --batch_size={batch} --max_length=12 --train_epochs={epochs}"
        " --epochs_between_evals={epochs} --dropout=0",
        "12 tokens",
        64,
        8,
        tokens=12,
    ),
    "mirrored_strategy": Example(
        "mirrored_strategy/mnist_classify.py",
        "--image-size=128 --batch-size-per-replica={micro} --epochs={epochs}",
        "128 x 128",
        16,
        3,
        slice=LONG,
    ),
}


def make_data(folder: Path) -> None:
    """Writes 320 JPEGs of 8 classes as TFRecords, and numbers in words as those of the Transformer."""
    import keras

    random = np.random.default_rng(0)
    for number in range(320):
        photo = folder / f"photos/class{number % 8}/{number}.jpg"
        photo.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.kron(random.integers(256, size=(12, 12, 3)), np.ones((12, 12, 1)))
        keras.utils.save_img(photo, pixels.astype("uint8"), scale=False)
    transformer = ROOT / "examples/models/transformer"
    numbers = folder / "numbers"
    for program, *arguments in (
        (ROOT / "examples/common/pack_imagenet.py", folder / "photos", folder / "images"),
        (transformer / "number_words.py", "--folder", numbers),
        (transformer / "data_download.py", "--data_dir", numbers / "data", "--vocab_size", 256,
         "--train_source", numbers / "train.en", "--train_target", numbers / "train.es"),
    ):  # fmt: skip
        subprocess.run([sys.executable, program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def command(example: Example, epochs: int, ranks: int, cores: set[int], data: Path, folder: Path) -> Command:
    """Trains on these cores in a new folder, which gets the timeline."""
    folder.mkdir(parents=True)
    batch = ranks * example.micro * example.tokens
    arguments = example.arguments.format(batch=batch, micro=example.micro, epochs=epochs, data=data)
    words = [*processes.launcher(ranks, f"--timeline={folder / TIMELINE}"), str(ROOT / "examples" / example.program)]
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}  # examples may read data of scikit-learn
    return Command([*words, *arguments.split()], cores, environment, folder)


def figures_of(timeline: Path, program: str) -> dict[str, float]:
    """Returns the seconds of a step, and the largest share that a rank waits for input."""
    found = trace.read(timeline)
    figures = measured(found.ranks, found.complete)
    assert figures.steady, f"{program} has trained no second epoch"
    return {"step": max(map(seconds_of_a_step, found.ranks)), "input": max(each[INPUT] for each in figures.shares)}


def seconds_of_a_step(rank: trace.Rank) -> float:
    """The mean over the epochs after the first, with what lies between two steps, but not between two epochs."""
    seconds, count = 0.0, 0
    for epoch in rank.epochs[1:]:
        steps = [step for step in rank.steps if epoch.begin <= step.begin and step.end <= epoch.end]
        seconds += steps[-1].end - steps[0].begin
        count += len(steps)
    return seconds / count


def compare(example: Example, epochs: int, first: str, data: Path) -> dict[str, dict[str, float]]:
    """One round of an example; `first` is started first."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    with contextlib.ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        parts = {"2 ranks": [(2, set(cores))], "silent": [(1, {core}) for core in cores]}
        order = sorted(parts, key=lambda row: row != first)
        jobs = [ends.enter_context(processes.Job(f"{example.program}, {row}", SECONDS)) for row in order]
        folders = {row: [folder / row / str(number) for number in range(len(parts[row]))] for row in order}
        for row, job in zip(order, jobs, strict=True):
            each = zip(parts[row], folders[row], strict=True)
            job.start([command(example, epochs, *part, data, its_folder) for part, its_folder in each], output=False)
        found: dict[str, dict[str, float]] = {}
        for row, stops in zip(order, slices.alternate(jobs, example.slice), strict=True):
            figures = []
            for its_folder in folders[row]:
                slices.cut(its_folder / TIMELINE, stops)
                figures.append(figures_of(its_folder / TIMELINE, example.program))
            found[row] = {name: max(each[name] for each in figures) for name in figures[0]}
        return found


HEAD = (
    "example", "rows a rank", "row", "step (ms)", "silent (ms)", "ratio (worst)", f"<= {GOAL:g}",
    "waits for input (worst)", f"< {INPUT_GOAL:.0%}",
)  # fmt: skip
MET = {True: "met", False: "MISSED"}


def cells(rounds: list[dict[str, Any]]) -> list[list[str]]:
    """The line of each example."""
    lines = []
    for name in rounds[0]["measured"]:
        runs = [each["measured"][name] for each in rounds]
        ratios = [each["2 ranks"]["step"] / each["silent"]["step"] for each in runs]
        steps = [1e3 * statistics.median(each[row]["step"] for each in runs) for row in ("2 ranks", "silent")]
        waits = [each["2 ranks"]["input"] for each in runs]
        ratio, wait = statistics.median(ratios), statistics.median(waits)
        line = [name, str(EXAMPLES[name].micro), EXAMPLES[name].row, *(f"{step:.1f}" for step in steps)]
        line += [f"{ratio:.3f} ({max(ratios):.3f})", MET[ratio <= GOAL]]
        lines.append([*line, f"{wait:.1%} ({max(waits):.1%})", MET[wait < INPUT_GOAL]])
    return lines


def markdown(rounds: list[dict[str, Any]], here: dict[str, Any]) -> str:
    """The table, with what it was measured on, and why it does not count if it does not."""
    lines = [HEAD, ["---"] * len(HEAD), *cells(rounds)]
    count = f"{len(rounds)} round{'s' * (len(rounds) > 1)}"
    text = [f"{here['processor']}, {here['cores']} cores, {here['date'][:10]}; {count}.", ""]
    text += [f"| {' | '.join(line)} |" for line in lines]
    if reasons := noise(rounds):
        text += ["", f"Noisy, so this run does not count: {'; '.join(reasons)}."]
    return "\n".join(text) + "\n"


def noise(rounds: list[dict[str, Any]]) -> list[str]:
    """Returns why the run does not count; nothing if it does."""
    reasons = ["a single round does not show how much rounds differ"] if len(rounds) < 2 else []
    shares = [each["strangers"] for each in rounds]
    if max(shares) > STRANGERS:
        reasons.append(f"others used up to {max(shares):.1%} of the CPU in a round (allowed: {STRANGERS:.0%})")
    return reasons


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=EXAMPLES, default=list(EXAMPLES), metavar="EXAMPLE")
    parser.add_argument("--tiny", action="store_true", help="two epochs, to see that everything runs")
    parser.add_argument("--json", type=Path, default=BUILD / "examples.json")
    options = parser.parse_args()
    processes.exit_on_signals()
    here = machine.describe()
    machine.warn_if_busy(here)
    cores = os.sched_getaffinity(0)
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        # No MNIST, in any row: the digits of scikit-learn are the same with and without a network.
        os.environ |= {**processes.ENVIRONMENT, "KERAS_HOME": folder, "https_proxy": "http://127.0.0.1:9"}
        if any("{data}" in EXAMPLES[name].arguments for name in options.only):
            make_data(Path(folder))
        for number in range(options.rounds):
            before, found = processes.usage(cores), {}
            for name in options.only:
                say(f"round {number + 1} of {options.rounds}: {name}")
                epochs = 2 if options.tiny else EXAMPLES[name].epochs
                found[name] = compare(EXAMPLES[name], epochs, ("silent", "2 ranks")[number % 2], Path(folder))
            others = processes.strangers(before, processes.usage(cores), min(2, len(cores)))
            say(f"others used {others:.1%} of the CPU")
            rounds.append({"strangers": others, "measured": found})
    table = markdown(rounds, here)
    print(table)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.with_suffix(".md").write_text(table, "utf-8")
    options.json.write_text(json.dumps({"machine": here, "tiny": options.tiny, "rounds": rounds}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
