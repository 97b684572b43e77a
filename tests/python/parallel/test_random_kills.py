"""A training whose ranks are killed again and again, at random, ends with the weights of a calm one."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# The kernel kills the rank, wherever it is: in Python, in a step, while it restores or keeps a snapshot.
SCRIPT = """
import os, random, signal, sys
import keras, numpy as np
import tarantella as tnt
target, (epochs, seed, kills) = sys.argv[1], map(int, sys.argv[2:])
attempt = tnt.restart_count()
choice = random.Random(1000 * seed + attempt)
from_start, seconds = choice.random() < 0.3, choice.uniform(0, 1.5)
def arm():
    if tnt.get_rank() == attempt % tnt.get_size() and attempt < kills:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
class Arm(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.is_armed = from_start
    def on_train_batch_end(self, batch, logs=None):
        if not self.is_armed:
            self.is_armed = True
            arm()
if from_start:
    arm()
x = np.random.default_rng(0).normal(size=(61, 5)).astype("float32"); y = x[:, :1] - x[:, 1:2]
keras.utils.set_random_seed(1)
layers = [keras.layers.Dense(7, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
model = tnt.Model(keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(1)]))
model.compile("adam", "mse", metrics=["mae"])
snapshot = tnt.keras.callbacks.Snapshot(7)
history = model.fit(x, y, batch_size=4, epochs=epochs, verbose=0, callbacks=[Arm(), snapshot])
if tnt.is_master_rank():
    kept = [*model.variables, *model.optimizer.variables]
    values = [np.asarray(v) for v in kept if v.name != "seed_generator_state"]
    np.savez(target, *values, np.array(history.history["loss"]), np.array(history.history["mae"]))
"""


@pytest.mark.parametrize(
    ("kills", "epochs"),
    [pytest.param(4, 150, marks=pytest.mark.full), pytest.param(120, 4500, marks=pytest.mark.extended)],
)
@pytest.mark.timeout(4000)
def test_ranks_that_are_killed_at_random(kills: int, epochs: int, scripts: Any, tmp_path: Path) -> None:
    seed = int(os.environ.get("TARANTELLA_SEED", random.randrange(10**6)))
    print("repeat with TARANTELLA_SEED", seed)
    folder = set(os.listdir("/dev/shm"))
    results = []
    for name, most in (("calm", 0), ("killed", kills)):
        target = str(tmp_path / f"{name}.npz")
        arguments = (target, str(epochs), str(seed), str(most))
        ended = scripts.ranks(2, SCRIPT, *arguments, options=("--max-restarts=10000",), timeout=30 * kills + 900)
        assert ended.code == 0, ended.err
        results.append(ended.err.count("tarantella: restart "))
    assert results[0] == 0
    assert results[1] >= kills / 2, ended.err  # the last may come after the end of the training
    with np.load(tmp_path / "calm.npz") as calm, np.load(tmp_path / "killed.npz") as killed:
        for each in calm.files:
            np.testing.assert_array_equal(calm[each], killed[each])
    assert set(os.listdir("/dev/shm")) <= folder
