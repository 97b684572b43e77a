"""Rows that cannot be gathered: what is said, and what ends the job."""

from __future__ import annotations

from typing import Any

import pytest

HEAD = """
import os, numpy as np, keras, tensorflow as tf
import tarantella as tnt
keras.utils.set_random_seed(1)
rank = tnt.get_rank()
x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32"); y = x[:, :1] + 1

def loss(true, predicted):
    return keras.ops.sum((true - predicted) ** 2) / keras.ops.sum(true ** 2)

def fit(*data, sequence=False, **options):
    i = keras.Input((None, 4) if sequence else (4,))
    m = tnt.Model(keras.Model(i, keras.layers.Dense(1)(i)))
    m.compile(keras.optimizers.SGD(0.05), loss, **options)
    return m
"""
WITHOUT = "is computed on each rank's own rows, not on the global batch: "


@pytest.mark.parametrize("ranks_over", ["all ranks", "rank 1 alone"])
def test_more_rows_than_the_limit_are_not_gathered(ranks_over: str, scripts: Any) -> None:
    source = (
        HEAD
        + f"""
if rank == 1 or {ranks_over == "all ranks"}:
    os.environ["TNT_GATHER_LIMIT"] = "0"
fit(metrics=[loss]).fit(x, y, batch_size=8, epochs=2, verbose=0)
"""
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err
    said = [line for line in ended.lines if "WARNING" in line and WITHOUT in line]
    where = "" if ranks_over == "all ranks" else "on rank 1 "
    for what in ("the loss 'loss'", "the metric 'loss'"):
        wanted = f"{what} {WITHOUT}{where}its rows take 0 MiB on each rank, more than TNT_GATHER_LIMIT=0"
        assert len([line for line in said if wanted in line]) == 1, ended.err
    assert "tnt_reduction = 'mean' or 'sum'" in said[0]


OWN_DATA = """
def batches():
    for step in range(3):
        length = 3 + (rank if step >= {first} else 0)
        yield np.ones((4, length, 4), "float32"), np.ones((4, length, 1), "float32")
length = {length}
spec = tuple(tf.TensorSpec((None, length, n), "float32") for n in (4, 1))
data = tf.data.Dataset.from_generator(batches, output_signature=spec)
fit(sequence=True).fit(data, verbose=0, tnt_distribute_dataset=False)
"""


def test_ranks_whose_rows_differ_in_shape_do_not_gather(scripts: Any) -> None:
    ended = scripts.ranks(2, HEAD + OWN_DATA.format(first=0, length="3 + rank"))
    assert ended.code == 0, ended.err
    wanted = f"the loss 'loss' {WITHOUT}the rows of rank 1 have another shape than those of rank 0"
    assert len([line for line in ended.lines if wanted in line]) == 1, ended.err


def test_rows_that_differ_in_a_later_step_end_the_job(scripts: Any) -> None:
    ended = scripts.ranks(2, HEAD + OWN_DATA.format(first=1, length=None))
    assert ended.code == 1
    wanted = (
        "rank 0 gathers part 0 float32 [rows, 3, 1] for the loss 'loss' (not gathered if tnt_reduction declares it)"
    )
    assert any("MismatchError" in line and wanted in line for line in ended.lines), ended.err
    assert "rank 1 part 0 float32 [rows, 4, 1]" in ended.err


def test_xla_is_switched_off_with_a_warning(scripts: Any) -> None:
    ended = scripts.ranks(2, HEAD + "fit(jit_compile=True).fit(x, y, batch_size=8, epochs=2, verbose=0)\n")
    assert ended.code == 0, ended.err
    said = [line for line in ended.lines if "jit_compile=True is switched off for training" in line]
    assert len(said) == 1
    assert "the rows of all ranks for loss" in said[0]


STEP = """
class Model(keras.Model):
    tnt_reduction = "{reduction}"
    def train_step(self, data):
        whole = tnt.gather_rows({given})
        return {{"loss": keras.ops.mean(whole)}}
i = keras.Input((4,)); m = Model(i, keras.layers.Dense(1)(i)); m.compile("sgd", jit_compile={xla}); m = tnt.Model(m)
try:
    m.fit(x, batch_size=8, verbose=0)
except {error} as error:
    assert {wanted!r} in str(error), error
else:
    raise AssertionError
print("refused")
"""


@pytest.mark.parametrize(
    ("reduction", "given", "xla", "error", "wanted"),
    [
        ("sum", "data", False, "ValueError", 'set tnt_reduction = "mean"'),
        ("mean", "keras.ops.sum(data)", False, "ValueError", "takes tensors with an axis of rows"),
        ("mean", "data", True, "NotImplementedError", "jit_compile=False"),
    ],
)
def test_rows_that_gather_rows_does_not_take(
    reduction: str, given: str, xla: bool, error: str, wanted: str, scripts: Any
) -> None:
    source = HEAD + STEP.format(reduction=reduction, given=given, xla=xla, error=error, wanted=wanted)
    ended = scripts.ranks(2, source, options=("--output-on-all-devices",))
    assert ended.out.count("refused") == 2, ended.err


def test_a_rank_that_gathers_alone_ends_in_that_step(scripts: Any) -> None:
    source = (
        HEAD
        + """
class Model(keras.Model):
    tnt_reduction = "mean"
    def train_step(self, data):
        if float(keras.ops.max(data)) < 9:
            tnt.gather_rows(data)
        return {"loss": keras.ops.mean(data)}
x[13, 0] = 10  # a row of rank 1, in the second step
i = keras.Input((4,)); m = Model(i, keras.layers.Dense(1)(i)); m.compile("sgd", run_eagerly=True)
tnt.Model(m).fit(x, batch_size=8, shuffle=False, verbose=0)
"""
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 1
    ways = 'waits in allgather "tarantella.gather_rows"', "waits in step 2 of the updates"  # who sees it first
    assert any("MismatchError" in line and any(way in line for way in ways) for line in ended.lines), ended.err


OWN_LOSS = """
class Model(keras.Model):
    def call(self, x, training=False):
        self.left = super().call(x)
        return self.left
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        {body}
i = keras.Input((4,)); m = Model(i, keras.layers.Dense(1)(i)); m.compile(keras.optimizers.SGD(0.05), {options})
tnt.Model(m).fit(x, y, batch_size=8, epochs=2, verbose=0)
"""
# What compute_loss does, options of compile, and the end of the WARNING; None where there is none.
OWN_LOSSES = {
    "of the batch": ("return keras.ops.std(y - y_pred)", "", None),
    "of what the call left": (
        "return keras.ops.mean((y - self.left) ** 2)",
        "",
        "does not see the rows of all ranks: it fails on them (",
    ),
    "of what the call left on one rank": (
        "return keras.ops.mean((y - (self.left if rank else y_pred)) ** 2)",
        "",
        "does not see the rows of all ranks: it fails on them on rank 1",
    ),
    "with XLA": (
        "return keras.ops.std(y - y_pred)",
        "jit_compile=True",
        "off for training on several ranks: not possible with the rows of all ranks for compute_loss",
    ),
}


@pytest.mark.parametrize("name", OWN_LOSSES)
def test_own_compute_loss_is_tried_out_before_the_first_step(name: str, scripts: Any) -> None:
    body, options, wanted = OWN_LOSSES[name]
    ended = scripts.ranks(2, HEAD + OWN_LOSS.format(body=body, options=options))
    assert ended.code == 0, ended.err
    said = [line for line in ended.lines if "tarantella: WARNING" in line]
    if wanted is None:
        assert not said, said
    else:
        assert len([line for line in said if wanted in line]) == 1, ended.err


def test_an_output_that_has_no_rows_is_not_gathered(scripts: Any) -> None:
    source = (
        HEAD
        + """
class Prototypes(keras.layers.Layer):
    def build(self, shape): self.table = self.add_weight(shape=(6, 1))
    def call(self, x): return x, self.table * 1.0
i = keras.Input((4,)); made = Prototypes()(keras.layers.Dense(1)(i))
class Model(keras.Model):
    def __init__(self):
        super().__init__(); self.dense, self.table = keras.layers.Dense(1), Prototypes()
    def call(self, x): return self.table(self.dense(x))
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean((y - y_pred[0]) ** 2) + keras.ops.mean(y_pred[1] ** 2)
m = Model(); m(x[:2]); m.compile(keras.optimizers.SGD(0.05))
tnt.Model(m).fit(x, y, batch_size=8, verbose=0)
"""
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err
    wanted = "axis 0 of a part of the labels or predictions is not the rows"
    assert len([line for line in ended.lines if wanted in line]) == 1, ended.err
