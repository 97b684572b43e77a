"""Submits a script of the scaling tutorial on two nodes, as its page says."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[3] / "examples"


def write_cifar10(folder: Path, rows: int) -> None:
    """Files in the format of CIFAR-10, with as many images each."""
    folder.mkdir(parents=True)
    images = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        data = images.integers(0, 256, (rows, 3072), dtype=np.uint8)
        with (folder / name).open("wb") as file:
            pickle.dump({b"data": data, b"labels": images.integers(0, 10, rows).tolist()}, file)


def test_a_job_on_two_nodes_trains_the_cnn(slurm, tmp_path, executable):
    for name in ("scaling_tutorial", "common"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    write_cifar10(tmp_path / "keras/datasets/cifar-10-batches-py-target/cifar-10-batches-py", 40)
    path = os.pathsep.join([str(Path(executable).parent), str(Path(sys.executable).parent)])
    command = "sbatch --wait -N 2 scripts/cifar_cnn.sh --n_epochs 1 --batch_size 20"
    done = slurm.run(
        "bash",
        "-c",
        f'export PATH="{path}:$PATH" KERAS_HOME="{tmp_path / "keras"}" CUDA_VISIBLE_DEVICES=-1; {command}',
        folder=tmp_path / "scaling_tutorial",
        timeout=240,
    )
    log = "".join(each.read_text() for each in (tmp_path / "scaling_tutorial/logs").glob("cifar-cnn-*.out"))
    assert done.returncode == 0, done.stdout + done.stderr + log
    assert {line.partition("@")[0] for line in log.splitlines() if line.startswith("[")} == {"[0", "[1"}, log
    assert log.count("Best validation accuracy") == 1, log
