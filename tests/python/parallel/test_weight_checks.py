"""Ranks whose weights drift apart within an epoch are detected soon and named."""

from __future__ import annotations

import re
from types import SimpleNamespace
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
x = np.random.default_rng(0).normal(size=(400, 4)).astype("float32")
net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1, name="last")])
model = tnt.Model(net)
model.compile("sgd", "mse", steps_per_execution=1)
nudge = Nudge()
try:
    model.fit(x, x[:, :1], batch_size=4, callbacks=[nudge], verbose=0)
finally:
    print("steps done:", nudge.last + 1)
"""


@pytest.mark.parametrize(("setting", "latest"), [("5", 10), ("", 32)])
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
    assert "steps done: 100" in ended.out
    assert any("rank 1 differs from rank 0 in trained weights" in line for line in ended.lines), ended.err


def test_ranks_that_would_check_at_different_steps_do_not_begin(scripts: Any) -> None:
    source = "import os\nos.environ['TNT_WEIGHT_CHECK_STEPS'] = str(5 + int(os.environ['TNT_RANK']))\n" + DRIFT
    ended = scripts.ranks(2, source.replace("print(", "str("))
    assert ended.code == 1
    assert any("TNT_WEIGHT_CHECK_STEPS=6" in line for line in ended.lines), ended.err


class FakeTime:
    """A step takes `step` seconds and a comparison `cost`; `compared` says before which steps there was one."""

    def __init__(self, drift: Any, monkeypatch: Any, step: float, cost: float) -> None:
        self.now, self.steps, self.compared = 0.0, 0, []
        self._step, self._cost = step, cost
        monkeypatch.setattr(drift, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(drift.backend, "checksum", self._half)
        monkeypatch.setattr(drift, "_compare", self._other_half)

    def _half(self, variables: Any) -> int:
        self.now += self._cost / 2
        return 0

    def _other_half(self, model: Any, checksum: int, proposal: int) -> int:
        self.now += self._cost / 2
        self.compared.append(self.steps)
        return proposal

    def run_step(self) -> None:
        self.now += self._step
        self.steps += 1


def trained(drift: Any) -> Any:
    model = type("Model", (), {"trainable_variables": [], "_flatten_layers": lambda self, **_: []})()
    drift.start(model)
    return model


def test_steps_count_from_epoch_to_epoch_and_from_call_to_call(monkeypatch: Any) -> None:
    drift = pytest.importorskip("tarantella.keras.epoch.drift")
    fake = FakeTime(drift, monkeypatch, step=1, cost=0.0024)
    model = trained(drift)
    for step in range(50):
        if step < 40:
            epoch = drift.BeforeSteps()
            epoch.set_model(model)
            epoch.on_epoch_begin(step)
            epoch.on_train_batch_begin(0)
        else:
            drift.before_step(model)
        fake.run_step()
    assert fake.compared == [32, 37, 42, 47]


@pytest.mark.parametrize(("step", "cost"), [(1e-2, 1e-4), (0.05, 0.03), (4.0, 2e-3), (1e-4, 1e-3)])
def test_comparisons_cost_a_thousandth_of_the_time(monkeypatch: Any, step: float, cost: float) -> None:
    drift = pytest.importorskip("tarantella.keras.epoch.drift")
    fake = FakeTime(drift, monkeypatch, step, cost)
    model = trained(drift)
    for _ in range(100_000):
        drift.before_step(model)
        fake.run_step()
    # The first comparison measures what one costs.
    assert 0 < (len(fake.compared) - 1) * cost <= 0.001 * fake.now


def test_the_checksum_sees_every_bit() -> None:
    backend = pytest.importorskip("tarantella._backend.tensorflow")
    for size in (1, 3, 8, 31, 32, 33, 70):
        seen = set()
        for place in range(-1, size):
            values = np.zeros(size, np.uint8)
            if place >= 0:
                values[place] = 1 << place % 8
            seen.add(backend.checksum([values[: size // 2], values[size // 2 :]]))
        assert len(seen) == size + 1
