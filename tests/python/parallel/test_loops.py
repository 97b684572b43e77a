"""Custom training loops, and the numbers that random layers draw."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HEAD = """
import sys, numpy as np, keras, tensorflow as tf
import tarantella as tnt
rank, size, out = tnt.get_rank(), tnt.get_size(), sys.argv[1]
keras.config.set_floatx("float64")
x = np.random.default_rng(1).normal(size=(32, 4)); y = x[:, :1] ** 2
"""

LOOP = (
    HEAD
    + """
op, eager = sys.argv[2], sys.argv[3] == "eager"
keras.utils.set_random_seed(5 + rank)
layers = [keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((4,)), *layers])
optimizer = keras.optimizers.Adam(0.05, global_clipnorm=0.1)
optimizer.build(model.trainable_variables)
if size > 1 or op == "average":
    assert tnt.distributed_optimizer(optimizer, op) is optimizer
tnt.broadcast_variables([model.variables, optimizer.variables])

def step(x, y, rows):
    with tf.GradientTape() as tape:
        errors = tf.square(y - model(x, training=True))
        loss = tf.reduce_mean(errors) if op == "average" else tf.reduce_sum(errors) / rows
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

step = step if eager else tf.function(step)
rows = 8 if op == "average" else 7  # 7 rows are no equal shares
for start in range(0, 32 - rows + 1, rows):
    mine = np.array_split(np.arange(start, start + rows), size)[rank]
    step(tf.constant(x[mine]), tf.constant(y[mine]), float(rows))
np.savez(f"{out}/{size}.{rank}.npz", *[np.asarray(v) for v in [*model.variables, *optimizer.variables]])
if rank == 0:
    model.compile(optimizer, "mse")
    model.save(f"{out}/{size}.keras")
"""
)


@pytest.mark.parametrize(("op", "mode"), [("average", "graph"), ("sum", "eager")])
def test_a_loop_trains_as_one_process(op: str, mode: str, scripts: Any, tmp_path: Any) -> None:
    for ranks in (1, 2):
        ended = scripts.ranks(ranks, LOOP, str(tmp_path), op, mode)
        assert ended.code == 0, ended.err
    alone, *both = (np.load(tmp_path / name) for name in ("1.0.npz", "2.0.npz", "2.1.npz"))
    for name in alone.files:
        for each in both:
            np.testing.assert_allclose(each[name], alone[name], rtol=1e-9, atol=1e-9)
        assert both[0][name].tobytes() == both[1][name].tobytes()
    loaded = scripts.plain(
        "import sys, keras\nkeras.models.load_model(sys.argv[1]).summary()\nassert 'tarantella' not in sys.modules\n",
        str(tmp_path / "2.keras"),
    )
    assert loaded.code == 0, loaded.err


PAGE = Path(__file__).parents[3] / "docs" / "guide.md"

GUIDE = """
import sys, numpy as np, keras, tensorflow as tf
keras.utils.set_random_seed(5)
keras.config.set_floatx("float64")
x = np.random.default_rng(1).normal(size=(19, 4)); y = x[:, :1] ** 2
layers = [keras.layers.Dense(6, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((4,)), *layers])
loss_fn = keras.losses.MeanSquaredError()
dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(19, seed=3).batch(6)  # the last batch has one row
"""

PLAIN = """
optimizer = keras.optimizers.Adam(1e-3)
for epoch in range(3):
    total = 0.0
    for x, y in dataset:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        total += loss
"""

SAVE = """
np.savez(sys.argv[1], float(total), *model.get_weights())
"""


def test_the_loop_of_the_guide_trains_as_one_process(scripts: Any, tmp_path: Any) -> None:
    """Where ranks have different shares, and where one has none."""
    section = PAGE.read_text().split("\n## Custom training loops\n")[1]
    loop = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert loop
    names = [str(tmp_path / name) for name in ("plain.npz", "ranks.npz")]
    assert scripts.plain(GUIDE + PLAIN + SAVE, names[0]).code == 0
    head = GUIDE + "import tarantella as tnt\n"
    ended = scripts.ranks(2, head + loop[1] + "if tnt.is_master_rank():" + SAVE.replace("\n", " "), names[1])
    assert ended.code == 0, ended.err
    assert "the first gradients" not in ended.err
    plain, ranks = (np.load(name) for name in names)
    for name in plain.files:
        np.testing.assert_allclose(ranks[name], plain[name], rtol=1e-9, atol=1e-12)


def test_a_loop_over_all_rows_on_every_rank_is_found(scripts: Any) -> None:
    loop = PLAIN.replace("optimizer.apply(", "apply(").replace("for epoch", MAKE_APPLY + "for epoch")
    ended = scripts.ranks(2, GUIDE + "import tarantella as tnt\n" + loop)
    assert ended.code == 0, ended.err
    (said,) = [line for line in ended.lines if "tarantella: WARNING" in line]
    assert "the first gradients of all ranks are equal" in said
    assert "tarantella.data.distribute(dataset)" in said


MAKE_APPLY = """
optimizer = tnt.distributed_optimizer(optimizer)
tnt.broadcast_variables(model)
@tf.function
def apply(gradients, variables):  # which arrive as tensors
    optimizer.apply(gradients, model.trainable_variables)
"""


def test_invalid_arguments_of_loop_functions_are_refused(scripts: Any, tmp_path: Any) -> None:
    source = (
        HEAD
        + """
for call, error, said in [
    (lambda: tnt.distributed_optimizer("adam"), TypeError, "needs a keras.optimizers.Optimizer (got str)"),
    (lambda: tnt.distributed_optimizer(keras.optimizers.SGD(), "max"), ValueError, "op must be 'average' or 'sum'"),
    (lambda: tnt.data.distribute((x, y)), TypeError, "needs a tf.data.Dataset (got tuple); for arrays use"),
    (lambda: tnt.data.distribute(tf.data.Dataset.range(8)), ValueError, "is not batched"),
    (lambda: tnt.broadcast_variables([keras.Variable(np.ones(2 + rank))]), tnt.MismatchError, "build the same model"),
]:
    try:
        call()
    except error as caught:
        assert said in str(caught), caught
    else:
        raise AssertionError(said)
print("all seen")
"""
    )
    ended = scripts.ranks(2, source, str(tmp_path))
    assert ended.code == 0, ended.err
    assert ended.out.count("all seen") >= 1


def test_random_layers_draw_apart_and_again_the_same(scripts: Any, tmp_path: Any) -> None:
    source = (
        HEAD
        + """
keras.utils.set_random_seed(11)
class Notes(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(shape=(2, 64), dtype="int32", trainable=False, name="seen")
    def call(self, x):
        self.seen.assign(keras.ops.cast(x, "int32"))
        return x
x = np.ones((8, 64))
layers = [keras.layers.Dropout(0.5), Notes(), keras.layers.Dense(1)]
model = tnt.Model(keras.Sequential([keras.Input((64,)), *layers]))
model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0)
np.savez(f"{out}/{sys.argv[2]}.{rank}.npz", mask=np.asarray(model.layers[1].seen) == 0, kernel=model.get_weights()[-2])
"""
    )
    for run in ("first", "second"):
        ended = scripts.ranks(2, source, str(tmp_path), run)
        assert ended.code == 0, ended.err
    runs = [[np.load(tmp_path / f"{run}.{rank}.npz") for rank in range(2)] for run in ("first", "second")]
    for one, other in zip(*runs, strict=True):
        assert (one["mask"] == other["mask"]).all()
        assert (one["kernel"] == other["kernel"]).all()
    masks = [each["mask"] for each in runs[0]]
    assert (masks[0] != masks[1]).any()
    assert all(0.2 < mask.mean() < 0.8 for mask in masks)


def test_losses_that_no_rule_makes_exact_are_named_once(scripts: Any, tmp_path: Any) -> None:
    source = (
        HEAD
        + """
class Coupled(keras.layers.Layer):
    def call(self, x):
        self.add_loss(keras.ops.mean(keras.ops.var(x, axis=0)))
        return x
def root(true, predicted):
    return keras.ops.sqrt(keras.ops.mean(keras.ops.square(true - predicted)))
def fit(loss, *layers):
    model = tnt.Model(keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)]))
    model.compile("sgd", loss)
    for _ in range(2):
        model.fit(x, y, batch_size=8, verbose=0)
fit(root)
fit(keras.losses.CosineSimilarity(axis=0))
fit(keras.losses.Dice())
fit("mse", Coupled(name="coupled"))
fit("mse", keras.layers.Dropout(0.5), keras.layers.ActivityRegularization(l2=0.1, name="fine"))
fit("binary_crossentropy")
fit("huber", keras.layers.Dense(3, kernel_regularizer="l2"))
"""
    )
    ended = scripts.ranks(2, source, str(tmp_path))
    assert ended.code == 0, ended.err
    said = [line for line in ended.lines if "tarantella: WARNING" in line]
    assert len(said) == 1, said
    assert "a loss that Coupled 'coupled' adds is neither a mean nor a sum over rows: " in said[0]


def test_a_fit_that_does_not_call_keras_own_is_named(scripts: Any) -> None:
    source = (
        HEAD
        + """
class Own(keras.Sequential):
    def fit(self, x):
        self.optimizer.build(self.trainable_variables)
        return "fitted"
model = tnt.Model(Own([keras.Input((4,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse")
assert model.fit(x) == "fitted"
"""
    )
    ended = scripts.ranks(2, source, "")
    assert ended.code == 0, ended.err
    assert "WARNING: fit of __main__.Own did not call Keras's own fit: every rank has run it alone" in ended.err


def test_predictions_of_another_number_of_rows_are_refused(scripts: Any) -> None:
    source = (
        HEAD
        + """
class Whole(keras.Model):
    def predict_step(self, data):
        return keras.ops.concatenate([data[0] if isinstance(data, tuple) else data] * 2)[:3]
i = keras.Input((4,)); model = tnt.Model(Whole(i, keras.layers.Dense(1)(i)))
try:
    model.predict(x, batch_size=8, verbose=0)
except ValueError as error:
    assert "predict_step returned 3 rows for the 4 rows of a batch on rank 0" in str(error), error
    print("refused")
"""
    )
    ended = scripts.ranks(2, source, "", options=("--output-on-all-devices",))
    assert ended.out.count("refused") == 2, ended.err


SCOPES = {
    "the model was made": "with scope: m = net()\ntnt.Model(m)",
    "it is wrapped": "with scope: tnt.Model(net())",
    "it is trained": "m = tnt.Model(net()); m.compile('sgd', 'mse')\nwith scope: m.fit(x, x[:, :1])",
}


@pytest.mark.parametrize("where", SCOPES)
def test_a_scope_of_a_strategy_that_is_left_in_is_named(where: str, scripts: Any) -> None:
    source = (
        HEAD
        + f"""
net = lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
scope = tf.distribute.MirroredStrategy(["/cpu:0"]).scope()
{SCOPES[where]}
"""
    )
    ended = scripts.ranks(2, source, "")
    assert ended.code == 1
    assert "ValueError: tarantella.Model trains on several ranks without tf.distribute: remove the Mirr" in ended.err


def test_gradients_are_reduced_without_an_optimizer_in_groups_and_variables_come_from_any_root(
    scripts: Any, tmp_path: Any
) -> None:
    source = (
        HEAD
        + """
dense, table = keras.Variable(np.ones((2, 3))), tf.Variable(np.ones((size, 2)))
own = [tf.constant(np.full((2, 3), rank + 1.0)), None, tf.constant(np.full((1, 2), rank + 1.0))]
variables = [dense, keras.Variable([1.0]), table]

def reduce(*options, **named):
    def step(full, values):
        slices = tf.IndexedSlices(values, tf.constant([rank], tf.int64), tf.constant([size, 2], tf.int64))
        first, none, second = tnt.reduce_gradients([full, None, slices], variables, *options, **named)
        assert none is None
        return first, tf.convert_to_tensor(second)
    for run in (step, tf.function(step)):
        yield [each.numpy() for each in run(own[0], own[2])]

def rows(ranks, share):
    return [[share * (r + 1.0)] * 2 if r in ranks else [0.0] * 2 for r in range(size)]

for first, second in reduce():
    np.testing.assert_allclose(first, np.full((2, 3), 2.0)), np.testing.assert_allclose(second, rows(range(3), 1 / 3))
for first, second in reduce("sum"):
    np.testing.assert_allclose(first, np.full((2, 3), 6.0)), np.testing.assert_allclose(second, rows(range(3), 1))
ends = tnt.Group([0, 2])
if rank in ends:
    for first, second in reduce("sum", group=ends):
        np.testing.assert_allclose(first, np.full((2, 3), 4.0)), np.testing.assert_allclose(second, rows([0, 2], 1))

@tf.function
def twice(one, owners=(Owner(), Owner())):
    return [tnt.reduce_gradients([one * (k + 1)], [dense], "sum", owner=owners[k])[0] for k in range(2)]
np.testing.assert_allclose(twice(own[0]), np.multiply.outer([6.0, 12.0], np.ones((2, 3))))

seeds = keras.random.SeedGenerator(rank)
mine = [keras.Variable(np.full(2, rank)), tf.Variable([rank])]
tnt.broadcast_variables(mine, root_rank=2)
assert all((np.asarray(each) == 2).all() for each in mine)
tnt.broadcast_variables([seeds.state], 1)
states = tnt.Allgatherv().execute(np.asarray(seeds.state)[None])
assert len(set(map(bytes, states))) == size and states[1][0] == 1
alone = [keras.Variable(np.full(2, rank))]
if rank in ends:
    tnt.broadcast_variables(alone, 2, ends)
assert (np.asarray(alone[0]) == (2 if rank in ends else 1)).all()
if rank in ends:
    try:
        tnt.broadcast_variables([keras.Variable(np.zeros(rank + 1), name="v")], 2, ends)
    except tnt.MismatchError as caught:
        assert "rank 2 differs from rank 0 in" in str(caught), caught
    else:
        raise AssertionError("no mismatch")
for call, said in [
    (lambda: tnt.reduce_gradients([], [], "max"), "op must be"),
    (lambda: tnt.reduce_gradients([None], [dense, table]), "there are 1 gradients for 2 variables"),
    (lambda: tnt.broadcast_variables([], 3), "rank 3 is not in the group"),
]:
    try:
        call()
    except ValueError as caught:
        assert said in str(caught), caught
    else:
        raise AssertionError(said)
print("all right")
"""
    ).replace("dense, table =", "class Owner:\n    pass\n\ndense, table =", 1)
    ended = scripts.ranks(3, source, str(tmp_path), options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert ended.out.count("all right") == 3
