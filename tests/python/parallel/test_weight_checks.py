"""Ranks whose weights drift apart within an epoch are detected soon and named."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

DRIFT = """
import numpy as np, keras
keras.utils.set_random_seed(1)  # for some initial values rounding brings the ranks together again
import tarantella as tnt
class Nudge(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.last = batch
        if tnt.get_rank() == 1 and batch == 6:
            kernel = self.model.layers[-1].kernel
            kernel.assign(np.nextafter(kernel.numpy(), 9))
x = np.random.default_rng(0).normal(size=(480, 4)).astype("float32")
net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1, name="last")])
model = tnt.Model(net)
model.compile("sgd", "mse", steps_per_execution=1)
nudge = Nudge()
try:
    model.fit(x, x[:, :1], batch_size=4, callbacks=[nudge], verbose=0)
finally:
    print("steps done:", nudge.last + 1)
"""


@pytest.mark.parametrize(("setting", "latest"), [("5", 10), ("", 100)])
def test_a_nudged_weight_is_found_within_the_epoch(setting: str, latest: int, scripts: Any) -> None:
    ended = scripts.ranks(2, DRIFT, TNT_WEIGHT_CHECK_STEPS=setting)
    assert ended.code == 1
    (done,) = map(int, re.findall(r"steps done: (\d+)", ended.out))
    assert done <= latest
    found = "rank 1 differs from rank 0 in trained weights: rank 0 has 'sequential/last/kernel' with the checksum"
    assert any("tarantella.MismatchError" in line and found in line for line in ended.lines), ended.err
    assert "must save and assign the old values" in ended.err
    assert "Traceback" not in ended.err


def test_a_nudged_weight_is_found_between_single_batches(scripts: Any) -> None:
    fit = "model.fit(x, x[:, :1], batch_size=4, callbacks=[nudge], verbose=0)"
    loop = """nudge.set_model(net)
    for batch in range(20):
        model.train_on_batch(x[:4], x[:4, :1])
        nudge.on_train_batch_end(batch)"""
    ended = scripts.ranks(2, DRIFT.replace(fit, loop), TNT_WEIGHT_CHECK_STEPS="5")
    assert ended.code == 1
    assert "steps done: 10" in ended.out
    assert any("rank 1 differs from rank 0 in trained weights" in line for line in ended.lines), ended.err


def test_switched_off_it_is_found_at_the_end_of_the_epoch(scripts: Any) -> None:
    ended = scripts.ranks(2, DRIFT, TNT_WEIGHT_CHECK_STEPS="0")
    assert ended.code == 1
    assert "steps done: 120" in ended.out
    assert any("rank 1 differs from rank 0 in trained weights" in line for line in ended.lines), ended.err


def test_ranks_that_would_check_at_different_steps_do_not_begin(scripts: Any) -> None:
    source = "import os\nos.environ['TNT_WEIGHT_CHECK_STEPS'] = str(5 + int(os.environ['TNT_RANK']))\n" + DRIFT
    ended = scripts.ranks(2, source.replace("print(", "str("))
    assert ended.code == 1
    assert any("TNT_WEIGHT_CHECK_STEPS=6" in line for line in ended.lines), ended.err


def test_the_checksum_sees_every_bit() -> None:
    checksum = pytest.importorskip("tarantella._exchange").checksum
    for size in (1, 3, 8, 31, 32, 33, 70):
        seen = set()
        for place in range(-1, size):
            values = np.zeros(size, np.uint8)
            if place >= 0:
                values[place] = 1 << place % 8
            seen.add(checksum([values[: size // 2], values[size // 2 :]]))
        assert len(seen) == size + 1
