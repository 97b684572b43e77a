"""The scaling tutorial, as its page tells a user to run it: every command of docs/tutorials/scaling.md."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jobs
import numpy as np
import pytest
from crowding import without_crowding

from .conftest import ROOT, Page, Place

pytestmark = pytest.mark.timeout(600)
PAGE = Page(
    "tutorials/scaling.md",
    {"python compare_ranks.py": "takes minutes: an extended test runs it"},
)
# Stands for Slurm: the script runs at once, with small batches, and writes its log where it says. For eight nodes,
# which are not here, it gets two tasks on one.
SBATCH = """#!/bin/bash
export SLURM_JOB_NUM_NODES=$2 SLURM_JOB_ID=17 SLURM_JOB_NODELIST=n1 SLURMD_NODENAME=n1 SCRATCH=$PWD/results
script=$3; shift 3
set -- --batch_size 8 "$@"
if [ $SLURM_JOB_NUM_NODES -gt 1 ]; then export SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=2; set -- --n_epochs 1 "$@"; fi
log=$(sed -n 's/^#SBATCH -o //p' $script)
bash $script "$@" > ${log/\\%j/$SLURM_JOB_NUM_NODES} 2>&1
"""


def write_cifar10(folder: Path, train: int, test: int) -> None:
    """Writes files in the format of CIFAR-10 with random images."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    names = [f"data_batch_{number}" for number in range(1, 6)]
    for name, rows in [("test_batch", test), *[(name, train // 5) for name in names]]:
        data = random.integers(256, size=(rows, 3072)).astype("uint8")
        (folder / name).write_bytes(pickle.dumps({b"data": data, b"labels": [row % 10 for row in range(rows)]}))


@pytest.fixture(scope="module")
def ran(place: Place) -> Any:
    """`ran(start)`: the folder of the tutorial, and what the command that starts so printed. Each runs once."""
    folder = place.folder
    write_cifar10(folder / "keras/datasets/cifar-10-batches-py-target/cifar-10-batches-py", train=40, test=20)
    (folder / "bin").mkdir()
    (folder / "bin/sbatch").write_text(SBATCH)
    (folder / "bin/sbatch").chmod(0o755)
    path = f"{folder / 'bin'}:{place.environment['PATH']}"
    with_slurm = dataclasses.replace(place, environment={**place.environment, "PATH": path})
    outputs: dict[str, str] = {}

    def run(start: str) -> tuple[Path, str]:
        command = PAGE.find(start)
        typed = "print('classes:', model.output_shape[-1], sorted(history))\n" if "--interactive" in command else ""
        if command not in outputs:
            outputs[command] = PAGE.run(with_slurm, command, stdin=typed)
        return folder / "examples/scaling_tutorial", outputs[command]

    return run


def best_line(output: str) -> str:
    return output.strip().splitlines()[-1]


@pytest.mark.timeout(900)
def test_one_two_and_four_ranks_train_and_are_compared(ran: Any) -> None:
    place, alone = ran("python train_horovod.py configs/dummy_cnn.yaml")
    assert "Rank 0 of 1 on" in alone
    assert re.search(r"INFO Best validation accuracy: 0\.\d{4} in epoch [123]$", best_line(alone))
    _, two = ran("tarantella -n 2")
    assert "Rank 0 of 2 on" in two and "Rank 1 of 2" not in two
    assert two.count("Epoch 1/3") == 1
    assert "finished gradual learning rate warmup to 0.002" in two
    _, four = ran("tarantella -n 4")
    for rank in range(4):
        assert re.search(rf"^\[{rank}\] .*INFO Rank {rank} of 4 on \S+, device: CPU \(\d+ cores?\)$", four, re.M)
    expected = ("absl::", " has waited ")  # a rank says so after a minute, on a machine that is busy
    warnings = [line for line in without_crowding(four).splitlines() if "WARNING" in line]
    assert [line for line in warnings if not any(part in line for part in expected)] == [], four

    for ranks in (1, 2, 4):
        results = place / f"results/dummy-cnn-n{ranks}-local"
        names = sorted(path.name for path in results.rglob("*"))
        assert names == ["checkpoint-1.keras", "checkpoint-2.keras", "checkpoint-3.keras", "checkpoints", "history.npz"]
        with np.load(results / "history.npz") as history:
            assert history["n_ranks"] == ranks
            assert all(history[key].shape == (3,) for key in ("loss", "accuracy", "val_accuracy", "epoch_seconds"))
            assert history["val_loss"][-1] < history["val_loss"][0]

    _, table = ran("python analysis.py")
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [
        [f"dummy-cnn-n{n}-local", str(n)] for n in (1, 2, 4)
    ]
    for name in ("learning_curves", "speed_up"):
        assert (place / f"plots/{name}.png").stat().st_size > 10_000

    notebook = json.loads((place / "analysis.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    done = subprocess.run([sys.executable, "-c", "\n".join(cells)], cwd=place, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_slurm_scripts_train_the_resnet_on_cifar10(ran: Any) -> None:
    ran("bash scripts/setup.sh")  # finds the data: there is no network
    place, _ = ran("sbatch -N 1")
    one = (place / "logs/cifar-cnn-1.out").read_text()
    assert "resnet_small" in one
    assert "Best validation accuracy" in best_line(one)
    assert (place / "results/cifar10-resnet-n1-17/history.npz").exists()
    ran("sbatch -N 8")
    two = (place / "logs/cifar-cnn-8.out").read_text()
    assert "WARNING Slurm has allocated 8 nodes, but the ranks of this job run on 1" in two
    assert "Rank 1 of 2 on" in two
    assert "Best validation accuracy" in best_line(two)


def test_options_override_the_configuration(ran: Any) -> None:
    place, output = ran("python train_horovod.py configs/dummy_cnn.yaml --show-config")
    for line in ("name: SGD", "lr: 0.05", "lr_scaling: sqrt", "batch_size: 64", "n_epochs: 1", "dropout: 0.2"):
        assert f"\n  {line}\n" in output
    assert "classes: 10 ['accuracy', 'loss', 'val_accuracy', 'val_loss']" in output  # of the interactive shell
    with np.load(place / "results/dummy-cnn-n1-local/history.npz") as history:
        assert len(history["loss"]) == 1


def test_bad_input_ends_a_job_with_one_sentence(tmp_path: Path) -> None:
    source = (ROOT / "examples/scaling_tutorial/configs/cifar10_resnet.yaml").read_text()
    (tmp_path / "bad.yaml").write_text(source.replace("resnet_small", "resnet_smal"))
    script = ROOT / "examples/scaling_tutorial/train_horovod.py"
    ended = jobs.run_ranks(2, script, str(tmp_path / "bad.yaml"), "-d")
    assert ended.code != 0
    sentence = (
        f"train_horovod.py: {tmp_path}/bad.yaml: model.name 'resnet_smal' is unknown; did you mean 'resnet_small'?"
    )
    assert any(line.startswith(sentence) for line in ended.lines), ended.err
    assert "Traceback" not in ended.err

    (tmp_path / "bad.yaml").write_text(source.replace("name: cifar10", "name: cifar10\n  data_dir: /nowhere"))
    ended = jobs.run([sys.executable, str(script), str(tmp_path / "bad.yaml")], SCRATCH=str(tmp_path))
    assert ended.code == 1
    assert ended.lines[-1] == "train_horovod.py: the data folder /nowhere does not exist"
    assert "Traceback" not in ended.err


@pytest.mark.extended
@pytest.mark.timeout(1800)
def test_linear_scaling_reaches_the_accuracy_of_one_rank(tmp_path: Path) -> None:
    script = ROOT / "examples/scaling_tutorial/compare_ranks.py"
    command = [sys.executable, str(script), "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_of_the_page_is_run(request: pytest.FixtureRequest) -> None:
    PAGE.assert_all_ran(request)
