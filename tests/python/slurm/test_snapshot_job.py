"""A training that Slurm stops in the middle goes on in the next run of the job, or in the next job of a chain."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.timeout(300), pytest.mark.full]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "slurm"
MODEL = """
import os, sys, numpy as np, keras
import tarantella as tnt
name = os.environ.get("SLURM_JOB_ID", "") + "." + os.environ.get("SLURM_RESTART_COUNT", "0")
class Trains(keras.callbacks.Callback):
    epochs = 0
    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1
        if self.epochs == 2 and tnt.is_master_rank():
            open("trains." + name, "w").close()
x = np.random.default_rng(0).normal(size=(61, 5)).astype("float32"); y = x[:, :1] - x[:, 1:2]
keras.utils.set_random_seed(1)
layers = [keras.layers.Dense(7, "tanh"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
model = tnt.Model(keras.Sequential([keras.Input((5,)), *layers]))
model.compile("adam", "mse")
snapshot = tnt.keras.callbacks.Snapshot(every=10**6, folder=sys.argv[1])
history = model.fit(x, y, batch_size=4, epochs=100, verbose=0, callbacks=[Trains(), snapshot])
if tnt.is_master_rank():
    np.savez("part.npz", *model.get_weights(), *map(np.array, model.optimizer.variables))
    os.rename("part.npz", sys.argv[1] + ".npz")
    print("epochs", history.epoch == list(range(100)))
"""


@pytest.fixture
def run(slurm: Any, tmp_path: Path, executable: str) -> Any:
    (tmp_path / "model.py").write_text(MODEL)
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    path = os.pathsep.join([str(Path(executable).parent), str(Path(sys.executable).parent)])

    def run(line: str) -> str:
        done = slurm.run("bash", "-c", f'PATH="{path}:$PATH"; {line}', folder=tmp_path, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    return run


def output(folder: Path) -> str:
    return "".join(each.read_text() for each in sorted(folder.glob("*.out")))


def check_same(folder: Path, run: Any) -> None:
    run("tarantella -n 2 -- model.py unbroken")
    with np.load(folder / "unbroken.npz") as expected, np.load(folder / "saved.npz") as found:
        assert len(found.files) > 10
        for name in found.files:
            np.testing.assert_array_equal(expected[name], found[name])


def test_a_job_queues_itself_again(slurm: Any, run: Any, tmp_path: Path) -> None:
    def said() -> str:
        return output(tmp_path)

    job = run("sbatch --parsable --output=job.out requeue.sh model.py saved").strip()
    slurm.wait_until((tmp_path / f"trains.{job}.0").exists, said)
    run(f"scancel --batch --signal=TERM {job}")
    slurm.wait_until((tmp_path / "saved.npz").exists, said, 120)
    slurm.wait_until(lambda: job not in run("squeue -h -o %i").split(), said)
    assert "epochs True" in output(tmp_path)
    assert output(tmp_path).count("after all ranks saved their work") == 1
    check_same(tmp_path, run)


def test_a_chain_of_jobs(slurm: Any, run: Any, tmp_path: Path) -> None:
    jobs = run("./chain.sh 4 --output=%j.out one_node.sh model.py saved").split()
    assert len(jobs) == 4
    for job in jobs[:2]:
        slurm.wait_until((tmp_path / f"trains.{job}.0").exists, lambda: output(tmp_path))
        run(f"scancel --batch --signal=TERM {job}")
    slurm.wait_until(lambda: not run("squeue -h -o %i").split(), lambda: output(tmp_path), 120)  # two jobs start
    said = [(tmp_path / f"{job}.out").read_text() for job in jobs]
    assert ["after all ranks saved their work" in each for each in said] == [True, True, False, False]
    assert ["epochs True" in each for each in said] == [False, False, True, True]
    assert not list(tmp_path.glob(f"trains.{jobs[3]}.*"))  # there was nothing left to train
    check_same(tmp_path, run)
