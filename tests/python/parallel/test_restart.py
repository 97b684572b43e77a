"""A training with BackupAndRestore that is killed and started again has the weights of one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = """
import os, sys, numpy as np, keras
import tarantella as tnt
folder, kills = sys.argv[1], dict(zip(map(int, sys.argv[2::2]), map(int, sys.argv[3::2])))
class Kill(keras.callbacks.Callback):
    # In attempt k, rank 1 dies in the middle of the epoch that the arguments give.
    def on_train_batch_end(self, batch, logs=None):
        if tnt.get_rank() == 1 and batch == 2 and kills.get(tnt.restart_count()) == self.epoch:
            os.kill(os.getpid(), 9)
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
x = np.random.default_rng(0).normal(size=(64, 5)).astype("float32"); y = x[:, :1] - x[:, 1:2]
keras.utils.set_random_seed(1)
model = tnt.Model(keras.Sequential([keras.Input((5,)), keras.layers.Dense(7, "tanh"), keras.layers.Dense(1)]))
model.compile("adam", "mse")
backup = keras.callbacks.BackupAndRestore(folder + "/backup")
history = model.fit(x, y, batch_size=8, epochs=4, shuffle=False, verbose=0, callbacks=[backup, Kill()])
if tnt.is_master_rank():
    np.savez(folder + "/weights.npz", *model.get_weights(), *(np.array(v) for v in model.optimizer.variables))
    print("epochs", history.epoch)
"""


def train(scripts: Any, folder: Path, name: str, *kills: int) -> tuple[Any, list[np.ndarray]]:
    folder = folder / name
    folder.mkdir()
    options = ("--max-restarts=3",) if kills else ()
    ended = scripts.ranks(2, SCRIPT, str(folder), *map(str, kills), options=options)
    assert ended.code == 0, ended.err
    with np.load(folder / "weights.npz") as found:
        return ended, [found[each] for each in found.files]


@pytest.mark.parametrize(
    ("kills", "epochs"), [((0, 2), "[2, 3]"), ((0, 0), "[0, 1, 2, 3]"), ((0, 1, 1, 3), "[3]"), ((0, 1, 1, 2), "[2, 3]")]
)
def test_a_killed_training_goes_on_from_its_backup(kills: Any, epochs: str, scripts: Any, tmp_path: Path) -> None:
    _, expected = train(scripts, tmp_path, "unbroken")
    ended, found = train(scripts, tmp_path, "killed", *kills)
    assert ended.err.count("tarantella: restart ") == len(kills) // 2
    assert f"epochs {epochs}" in ended.out
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_same_failure_in_each_epoch_is_progress_and_in_one_epoch_is_not(scripts: Any, tmp_path: Path) -> None:
    train(scripts, tmp_path, "each", 0, 0, 1, 1, 2, 2)
    ended = scripts.ranks(2, SCRIPT, str(tmp_path), *map(str, (0, 1, 1, 1)), options=("--max-restarts=3",))
    assert ended.code == 137
    assert "the same failure twice" in ended.lines[-1]
