"""What ranks find in the first batch of a model, and what it costs: one more trace, and no batch."""

from __future__ import annotations

from typing import Any

import pytest

HEAD = """
import sys, numpy as np, keras, tensorflow as tf
from keras import ops
if {ranks}:
    import tarantella as tnt
    wrap, rank = tnt.Model, tnt.get_rank()
else:
    wrap, rank = (lambda m: m), 0
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(32, 4)); y = x[:, :1] + 1

class Adds(keras.layers.Layer):
    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function
    def call(self, x):
        self.add_loss(self.function(x))
        return x

def fit(*layers, x=x, y=y, epochs=2, batch_size=8, loss="mse", **options):
    m = wrap(keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)]))
    m.compile(keras.optimizers.SGD(0.01), loss)
    return m.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0, **options)
"""


def warnings_of(scripts: Any, source: str, ranks: int = 2) -> list[str]:
    ended = scripts.ranks(ranks, HEAD.format(ranks=True) + source)
    assert ended.code == 0, ended.err
    return [line.split("WARNING: ")[1] for line in ended.lines if "tarantella: WARNING" in line]


def test_layers_and_losses_that_differ_are_named_with_figures(scripts: Any) -> None:
    source = """
class Centered(keras.layers.Layer):
    def call(self, x, training=False):
        return x - ops.mean(x, axis=0) if training else x
for _ in range(2):
    fit(Adds(ops.mean), Centered(name="mine"), Adds(lambda x: ops.mean(ops.var(x, axis=0)), name="spread"))
"""
    mine, spread = warnings_of(scripts, source)
    assert mine.startswith("Centered 'mine' (0.") and "): the output for a row depends on which rows" in mine
    assert "tarantella.gather_rows" in mine
    assert spread.startswith("a loss that Adds 'spread' adds is neither a mean nor a sum over rows: ")
    assert " for 4 rows of rank 0, " in spread and " for 2 and 2 of them. It counts as a mean, so" in spread


def test_no_warning_of_what_is_exact(scripts: Any) -> None:
    source = """
class Sampling(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)
    def call(self, x):
        self.add_loss(0.001 * ops.mean(x ** 2))
        return x + 0.01 * keras.random.normal(ops.shape(x), seed=self.seeds)
class Centered(keras.layers.Layer):
    def call(self, x):
        self.add_loss(ops.var(tnt.gather_rows(x)))
        return x - ops.mean(tnt.gather_rows(x), axis=0)
fit(Sampling(), keras.layers.Dropout(0.5), Adds(lambda x: ops.sum(x ** 2)), keras.layers.Lambda(lambda x: x * 2))
fit(Centered(), Adds(lambda x: ops.sum(x ** 2)))
fit(Adds(lambda x: ops.sum(x ** 2)), batch_size=2, epochs=1)
fit(keras.layers.Dense(3, activity_regularizer="l2"), keras.layers.BatchNormalization(synchronized=True))
"""
    assert warnings_of(scripts, source) == []


def test_what_the_first_batch_does_not_tell_is_said_once(scripts: Any) -> None:
    (said,) = warnings_of(scripts, "fit(Adds(lambda x: 0 * ops.sum(x), name='a'), epochs=3)")
    assert said.startswith(
        "a loss that Adds 'a' adds is 0, or random, in the first batch. It counts as a mean over rows"
    )


def test_a_model_that_fails_outside_of_a_step_trains_all_the_same(scripts: Any) -> None:
    source = """
class Model(keras.Sequential):
    def call(self, x, training=None):
        if training and not self.in_step:
            raise RuntimeError("outside")
        return super().call(x, training=training)
    def train_step(self, data):
        self.in_step = True
        try:
            return super().train_step(data)
        finally:
            self.in_step = False
m = Model([keras.Input((4,)), Adds(ops.mean, name="a"), keras.layers.Dense(1)]); m.in_step = False
m.compile("sgd", "mse")
print("trained", len(tnt.Model(m).fit(x, y, batch_size=8, epochs=2, verbose=0).history["loss"]))
"""
    ended = scripts.ranks(2, HEAD.format(ranks=True) + source, TNT_LOG_LEVEL="info")
    assert ended.code == 0 and "trained 2" in ended.out, ended.err
    assert (
        "is not tried out on its first batch, because its call fails there, outside of a step: RuntimeError: outside"
        in ended.err
    )
    why = "was not seen before the first step: the model's call fails outside of a step (RuntimeError: outside)"
    assert f"a loss that Adds 'a' adds {why}" in ended.err


def test_a_rank_whose_first_batch_shows_a_loss_decides_for_all(scripts: Any) -> None:
    source = """
rows = np.concatenate([np.zeros((4, 4)), np.ones((4, 4))] * 4)  # those of rank 0 add nothing
print(fit(Adds(ops.sum), x=rows, y=rows[:, :1], shuffle=False, epochs=1).history["loss"])
"""
    plain, ended = scripts.plain(HEAD.format(ranks=False) + source), scripts.ranks(2, HEAD.format(ranks=True) + source)
    assert ended.out and "WARNING" not in ended.err, ended.err
    assert float(ended.out.strip("[]\n")) == pytest.approx(float(plain.out.strip("[]\n")), rel=1e-5)


COUNTS = """
class Prints(keras.layers.Layer):
    def call(self, x):
        print("called", flush=True)
        return x
read = []
def source():
    for _ in range(12):
        read.append(len(read))
        yield x[:8], y[:8]
steps = fit(Prints(), x=source(), y=None, batch_size=None, steps_per_epoch=4, epochs=3).model.optimizer.iterations
print("read", len(read), "steps", int(steps))
"""


def test_a_trial_reads_no_batch_and_calls_layers_as_in_one_more_trace(scripts: Any) -> None:
    def run(switch: str) -> int:
        source = HEAD.format(ranks=True) + switch + COUNTS
        ended = scripts.ranks(2, source, options=("--output-on-all-devices",))
        assert ended.code == 0, ended.err
        assert ended.out.count("read 12 steps 12") == 2, ended.out
        return ended.out.count("called")

    without = "from tarantella.keras.step import batch_dependent; batch_dependent.candidates = lambda model: []"
    assert run("") == run(without) + 2
