"""Gradients in a user's train_step: what ends the job in its step, and what is refused or warned of."""

from __future__ import annotations

from typing import Any

import pytest

HEAD = """
import os, sys, numpy as np, keras, tensorflow as tf
import tarantella as tnt
keras.utils.set_random_seed(1)
rank = tnt.get_rank()
x = np.random.default_rng(0).normal(size=(48, 4)).astype("float32"); y = x[:, :1] + 1

class Own(keras.Model):
    tnt_reduction = "mean"
    count = None
    def train_step(self, data):
        x, y = data
        if self.count is not None: self.count.assign_add(1)
        loss = self.step(x, y, self.trainable_variables)
        return {"loss": loss}
    def loss_of(self, x, y): return tf.reduce_mean(tf.square(self(x, training=True) - y))
    def take(self, x, y, v):
        with tf.GradientTape() as tape: loss = self.loss_of(x, y)
        return loss, tape.gradient(loss, v)

def fit(kind, epochs=1, **options):
    i = keras.Input((4,)); m = kind(i, keras.layers.Dense(1)(i)); m.count = tf.Variable(0)
    m.compile(keras.optimizers.SGD(0.05), "mse", **options); m.optimizer.build(m.trainable_variables)
    m = tnt.Model(m); m.fit(x, y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return m
"""

# Rank 0 has rows 0 to 3 of each batch of 8, rank 1 rows 4 to 7; there are 6 steps.
TAPE_INSIDE = """
class Model(Own):
    def step(self, x, y, v):
        def go():
            loss, g = self.take(x, y, v)
            self.optimizer.apply(g, v)
            return loss
        return tf.cond(tf.reduce_max(x) < 9, go, lambda: tf.constant(0.0))
"""
APPLY_INSIDE = """
class Model(Own):
    def step(self, x, y, v):
        loss, g = self.take(x, y, v)
        tf.cond(tf.reduce_max(x) < 9, lambda: self.optimizer.apply(g, v), lambda: None)
        return loss
"""
LOOP_INSIDE = """
class Model(Own):
    def step(self, x, y, v):
        for turn in range(1 + int(tf.reduce_max(x) > 9)):
            loss, g = self.take(x, y, v)
        self.optimizer.apply(g, v)
        return loss
"""
# What is left out, in which rows a large value makes ranks differ, options of compile, words of the error.
LEFT_OUT = {
    "a step of one rank": (TAPE_INSIDE, (17,), "", " meanwhile; give every rank the same number of batches"),
    "as many steps of each rank": (TAPE_INSIDE, (9, 21), "", "in step 2 of the "),
    "the last step": (TAPE_INSIDE, (41,), "", " meanwhile; give every rank the same number of batches"),
    "an update": (APPLY_INSIDE, (17,), "", "rank 0 sums the updates of training step 3, rank 1 those of step 4"),
    "the last update": (APPLY_INSIDE, (41,), "", "rank 0 sums the updates of training step 6, rank 1 those of step 7"),
    "a turn of a loop": (LOOP_INSIDE, (17,), "run_eagerly=True", "the ranks wait for one another"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_ranks_that_leave_out_a_gradient_or_an_update_alone_end_in_that_step(name: str, scripts: Any) -> None:
    code, rows, options, wanted = LEFT_OUT[name]
    source = HEAD + code + f"x[{list(rows)}, 0] = 10\n"
    source += f"fit(Model, {options})\n"
    ended = scripts.ranks(2, source)
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    assert any("tarantella.MismatchError" in line and wanted in line for line in ended.lines), ended.err


TAKES_TURNS = """
        with tf.GradientTape(persistent=True) as tape:
            rows = tf.reduce_sum(tf.square(self(x, training=True) - y), -1)
"""
REFUSED = {
    "an entry of a vector": f"{TAKES_TURNS}        tape.gradient(rows[0], v)",
    "a slice": f"{TAKES_TURNS}        tape.gradient(tf.slice(rows, [0], [1]), v)",
    "a list of one": f"{TAKES_TURNS}        tape.gradient(tf.gather(rows, [0]), v)",
    "unstacked": f"{TAKES_TURNS}        tape.gradient(tf.unstack(rows, 4)[1], v)",
    "a Python loop over rows": "        for i in range(4): self.take(x[i:i+1], y[i:i+1], v)",
    "map_fn": "        tf.map_fn(lambda row: self.take(row[0][None], row[1][None], v)[1][0], (x, y), "
    "fn_output_signature=tf.float32)",
    "vectorized_map": "        tf.vectorized_map(lambda row: self.take(row[0][None], row[1][None], v)[1][0], (x, y))",
    "a loop of as many turns as rows": "        tf.while_loop(lambda i, s: i < tf.shape(x)[0], "
    "lambda i, s: (i + 1, s + self.take(x, y, v)[1][0]), (0, tf.zeros((4, 1))))",
}


def test_gradients_of_single_rows_are_refused_with_the_cure(scripts: Any) -> None:
    source = HEAD
    for number, (name, body) in enumerate(REFUSED.items()):
        needs_rows = name in ("unstacked", "a Python loop over rows")
        source += f"class Model{number}(Own):\n    def step(self, x, y, v):\n{body}\n        return tf.constant(0.0)\n"
        source += f"""
i = keras.Input((4,)); m = Model{number}(i, keras.layers.Dense(1)(i)); m.compile("sgd", "mse"); m = tnt.Model(m)
d = tf.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder={needs_rows})
try:
    m.fit(d, verbose=0)
except NotImplementedError as error:
    assert "tarantella.local_gradients()" in str(error), error
else:
    raise AssertionError({name!r})
"""
    ended = scripts.ranks(2, source + "print('all refused')\n", options=("--output-on-all-devices",))
    assert ended.out.count("all refused") == 2, ended.err


IN_LOSS = """
class Model(keras.Model):
    tnt_reduction = "mean"
    count = None
    def norm(self, x, y):
        with tf.GradientTape() as tape: loss = tf.reduce_mean(tf.square(self(x) - y))
        return tf.linalg.global_norm(tape.gradient(loss, self.trainable_variables))
    def compute_loss(self, x=None, y=None, y_pred=None, *args, **options):
        return tf.reduce_mean(tf.square(y_pred - y)) / (1 + tf.stop_gradient(self.norm(x[:1], y[:1])))
"""


def test_gradients_of_single_rows_in_compute_loss_are_refused(scripts: Any) -> None:
    ended = scripts.ranks(2, HEAD + IN_LOSS + "fit(Model)\n")
    assert ended.code == 1, ended.err
    assert any("NotImplementedError" in line and "local_gradients()" in line for line in ended.lines), ended.err


def test_what_ranks_have_for_themselves_is_warned_of(scripts: Any) -> None:
    source = (
        HEAD
        + """
class ByLoss(Own):
    def step(self, x, y, v):
        loss, g = self.take(x, y, v)
        self.optimizer.apply([e * tf.tanh(loss) for e in g], v)
        return loss
class ByHand(Own):
    def step(self, x, y, v):
        loss, _ = self.take(x, y, v)
        self.optimizer.apply([tf.reduce_mean(x, 0)[:, None], tf.reduce_mean(y, 0)], v)
        return loss
elsewhere = tf.Variable(2.0)
class Elsewhere(Own):
    def loss_of(self, x, y): return super().loss_of(x * elsewhere, y)
    def step(self, x, y, v):
        loss, g = self.take(x, y, [*v, elsewhere])
        self.optimizer.apply(g[:-1], v)
        return loss
for kind in ByLoss, ByHand, Elsewhere:
    fit(kind)
fit(ByLoss, run_eagerly=True)
print("trained")
"""
    )
    ended = scripts.ranks(2, source)
    assert "trained" in ended.out, ended.err
    for words in (
        "between the tape and the optimizer, the gradients of dense/kernel, dense/bias are combined with values",
        "a tape has summed the gradients of dense_1/kernel, dense_1/bias over the ranks, and an optimizer gets others",
        "the variable 'Variable:0' is neither the model's nor one of its optimizers'",
        "between the tape and the optimizer, the gradients of dense_3/kernel, dense_3/bias are combined with values",
    ):
        assert sum(words in line for line in ended.lines) == 1, ended.err


def test_gradients_are_summed_once(scripts: Any) -> None:
    source = (
        HEAD
        + """
import tarantella.horovod.keras as hvd
hvd.init()
class Again(Own):
    def step(self, x, y, v):
        loss, g = self.take(x, y, v)
        tnt.reduce_gradients(g, v)
class Horovod(Own):
    def step(self, x, y, v):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape: loss = self.loss_of(x, y)
        tape.gradient(loss, v)
again, twice = (Again, ValueError, "already summed over the ranks"), (Horovod, RuntimeError, "sum gradients twice")
for kind, error, words in again, twice:
    try:
        fit(kind)
    except error as caught:
        assert words in str(caught), caught
    else:
        raise AssertionError(words)
print("both refused")
"""
    )
    ended = scripts.ranks(2, source)
    assert "both refused" in ended.out, ended.err


def test_a_step_with_nested_tapes_lets_its_model_go(scripts: Any) -> None:
    """TensorFlow keeps the function of a custom gradient for ever."""
    source = (
        HEAD
        + """
import gc, weakref
class Penalty(Own):
    def step(self, x, y, v):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner: loss = self.loss_of(x, y)
            penalty = tf.add_n([tf.reduce_sum(g ** 2) for g in inner.gradient(loss, v)])
        self.optimizer.apply(outer.gradient(penalty, v), v)
        return loss
m = fit(Penalty)
kept = [weakref.ref(m), weakref.ref(m.optimizer)]
del m
keras.backend.clear_session(); gc.collect()
assert [each() for each in kept] == [None, None], kept
print("let go")
"""
    )
    ended = scripts.ranks(2, source, options=("--output-on-all-ranks",))
    assert ended.out.count("let go") == 2, ended.err


def test_variables_outside_keras_are_compared(scripts: Any) -> None:
    source = (
        HEAD
        + """
class Tempered(Own):
    def step(self, x, y, v):
        self.scale.assign_add(float(rank))
        loss, g = self.take(x * self.scale, y, v)
        self.optimizer.apply(g, v)
        return loss
Tempered.scale = None
i = keras.Input((4,)); m = Tempered(i, keras.layers.Dense(1)(i)); m.scale = tf.Variable(1.0, name="scale")
m.compile("sgd", "mse"); tnt.Model(m).fit(x, y, batch_size=8, verbose=0)
"""
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 1
    assert any("trained weights" in line and "scale" in line for line in ended.lines), ended.err


def test_an_eager_step_keeps_no_gradient(scripts: Any) -> None:
    source = """
import gc, weakref
kept = []
class Model(Own):
    def step(self, x, y, v):
        loss, g = self.take(x, y, v)
        kept.append(weakref.ref(g[0]))
        self.optimizer.apply(g, v)
        return loss
gc.disable()
fit(Model, run_eagerly=True)
assert len(kept) == 6 and not any(each() is not None for each in kept), kept
print("none kept")
"""
    ended = scripts.ranks(2, HEAD + source, options=("--output-on-all-devices",))
    assert ended.out.count("none kept") == 2, ended.err


NOT_FINITE = """
import sys
import keras, numpy as np, tensorflow as tf
import tarantella as tnt
kind, how = sys.argv[1:]
sparse = kind == "sparse"
x = np.ones((32, 3), "int64" if sparse else "float32")
y = np.ones((32, 1), "float32")
y[22] = np.inf if kind == "inf" else np.nan  # in the third batch of 8, whose second half rank 1 has
first = [keras.layers.Embedding(4, 2, name="first"), keras.layers.Flatten()] if sparse else []
layers = [*first, keras.layers.Dense(4, name="second"), keras.layers.Dense(1, name="last", trainable=not sparse)]
layers[-2].trainable = not sparse
model = tnt.Model(keras.Sequential([keras.Input((3,), dtype=x.dtype.name), *layers]))
optimizer = keras.optimizers.SGD(0.01)
if how == "scaled":
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
model.compile(optimizer, "mse", run_eagerly=how == "eager", jit_compile=how == "xla")
model.fit(x, y, 8, verbose=0, shuffle=False)
print("trained")
"""


@pytest.mark.parametrize(
    ("kind", "how"), [("nan", "graph"), ("inf", "eager"), ("nan", "xla"), ("sparse", "graph"), ("sparse", "eager")]
)
def test_a_gradient_that_is_not_finite_is_named(kind: str, how: str, scripts: Any) -> None:
    ended = scripts.ranks(2, NOT_FINITE, kind, how, TNT_CHECK_GRADIENTS="1")
    assert ended.code == 1
    assert "trained" not in ended.out
    wanted = "rank 1: the sparse gradient of 'first" if kind == "sparse" else 'rank 1: the gradient of "last/'
    assert wanted in ended.err, ended.err
    assert "is not finite" in ended.err
    if kind != "sparse":
        assert "in step 3 of the gradients" in ended.err


@pytest.mark.parametrize(("how", "check"), [("graph", "0"), ("scaled", "1")])
def test_a_gradient_that_is_not_finite_ends_nothing_unasked(how: str, check: str, scripts: Any) -> None:
    ended = scripts.ranks(2, NOT_FINITE, "nan", how, TNT_CHECK_GRADIENTS=check)
    assert "TNT_CHECK_GRADIENTS" not in ended.err
    assert "ValueError: the loss is nan" in ended.err  # as without it, at the end of the epoch
