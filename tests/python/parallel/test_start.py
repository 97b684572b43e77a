"""How ranks start with the same state, and what they know of each other."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import TIER

HEAD = """
import sys, numpy as np, keras
import tarantella as tnt
rank, out = tnt.get_rank(), sys.argv[1]
x = np.random.default_rng(1).normal(size=(16, 4)); y = (x.sum(1) > 0).astype("float32")
def compiled(model, **options):
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", **options)
    return model
"""


@pytest.mark.real_start
def test_variables_and_seeds_come_from_the_master(scripts: Any, tmp_path: Any) -> None:
    source = (
        HEAD
        + """
keras.utils.set_random_seed(100 + rank)  # every rank starts from its own weights and seeds
inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
before = inner.get_weights()[0]
model = compiled(tnt.Model(inner))
model.fit(x, y, batch_size=4, epochs=0, verbose=0)
start = inner.get_weights()[0]
seeds = [np.asarray(v) for v in inner.variables if v.name == "seed_generator_state"]
model.fit(x, y, batch_size=4, epochs=2, verbose=0)
np.savez(f"{out}/{rank}.npz", before=before, start=start, seed=seeds[0], end=inner.get_weights()[0])
"""
    )
    import numpy as np

    ended = scripts.ranks(3, source, str(tmp_path))
    assert ended.code == 0, ended.err
    ranks = [np.load(tmp_path / f"{rank}.npz") for rank in range(3)]
    for other in ranks[1:]:
        assert (other["before"] != ranks[0]["before"]).any()
        assert (other["start"] == ranks[0]["before"]).all()
        assert (other["end"] == ranks[0]["end"]).all()
    assert len({int(rank["seed"][0]) for rank in ranks}) == 3  # a stream of Dropout masks for each


def test_moving_statistics_are_alike_at_the_end(scripts: Any, tmp_path: Any) -> None:
    source = (
        HEAD
        + """
inner = keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
model = compiled(tnt.Model(inner))
model.fit(x[:13], y[:13], batch_size=4, epochs=2, verbose=0)  # the last batch leaves ranks without rows
np.savez(f"{out}/{rank}.npz", *inner.get_weights())
"""
    )
    import numpy as np

    ended = scripts.ranks(2, source, str(tmp_path))
    assert ended.code == 0, ended.err
    first, second = (np.load(tmp_path / f"{rank}.npz") for rank in range(2))
    for name in first.files:
        assert np.isfinite(first[name]).all()
        assert (first[name] == second[name]).all()


@pytest.mark.real_start
def test_side_effects_happen_once(scripts: Any, tmp_path: Any) -> None:
    source = (
        HEAD
        + """
class Count(keras.callbacks.Callback):
    epochs = 0
    def on_epoch_end(self, epoch, logs=None):
        Count.epochs += 1
        self.model.evaluate(x, y, verbose=0)  # plain Keras on this rank alone
        if tnt.is_master_rank():
            self.model.evaluate(x, y, verbose=0)
model = compiled(tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])))
files = [keras.callbacks.ModelCheckpoint(f"{out}/{rank}.keras"), keras.callbacks.CSVLogger(f"{out}/{rank}.csv")]
model.fit(x, y, batch_size=4, epochs=2, verbose=2, callbacks=[*files, Count()])
model.save(f"{out}/saved{rank}.keras")
model.save_weights(f"{out}/all{rank}.weights.h5", tnt_save_all_devices=True)
assert Count.epochs == 2
"""
    )
    ended = scripts.ranks(2, source, str(tmp_path))
    assert ended.code == 0, ended.err
    assert ended.out.count("Epoch 2/2") == 1
    names = {path.name for path in tmp_path.iterdir()} - {"script.py"}
    assert names == {"0.keras", "0.csv", "saved0.keras", "all0.weights.h5", "all1.weights.h5"}
    loaded = scripts.plain(
        "import sys, keras\nkeras.models.load_model(sys.argv[1]).summary()\nassert 'tarantella' not in sys.modules\n",
        str(tmp_path / "saved0.keras"),
    )
    assert loaded.code == 0, loaded.err


@pytest.mark.real_start
def test_ranks_have_their_numbers_and_meet_in_a_barrier(scripts: Any, tmp_path: Any) -> None:
    source = """
import sys, time, pathlib
import tarantella as tnt
tnt.init(); tnt.init()
rank, out = tnt.get_rank(), pathlib.Path(sys.argv[1])
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
if rank == 2:
    time.sleep(0.5)
(out / f"{rank}").touch()
tnt.Barrier().execute()
assert sorted(p.name for p in out.iterdir() if p.name.isdigit()) == ["0", "1", "2"]
assert (tnt.get_size(), tnt.get_local_rank(), tnt.get_master_rank(), tnt.is_master_rank()) == (3, rank, 0, rank == 0)
"""
    ended = scripts.ranks(3, source, str(tmp_path))
    assert ended.code == 0, ended.err


def test_a_bucket_is_reduced_before_the_last_gradient_is_ready(scripts: Any, tmp_path: Any) -> None:
    """Within one step at least, of 80: two cores that take turns with others need not overlap in each."""
    source = """
import numpy as np, keras
import tarantella as tnt
layers = [keras.layers.Dense(256, activation="relu") for _ in range(8)]
model = tnt.Model(keras.Sequential([keras.Input((256,)), *layers]))
model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
x = np.random.default_rng(0).normal(size=(1024, 256)).astype("float32")
model.fit(x, x, batch_size=512, epochs=40, verbose=0)
"""
    import json

    file = tmp_path / "timeline.json"
    ended = scripts.ranks(2, source, options=("--fusion-threshold", "300", "--timeline", str(file)))
    assert ended.code == 0, ended.err
    events = json.loads(file.read_text())["traceEvents"]
    for rank in range(2):
        mine = [event for event in events if event["pid"] == rank]
        tensors = 16
        submits = sorted(event["ts"] for event in mine if event.get("cat") == "gradient")
        reduced = [event["ts"] + event["dur"] for event in mine if event.get("cat") == "sum"]
        assert len(submits) == 80 * tensors
        steps = [submits[i : i + tensors] for i in range(0, len(submits) - tensors + 1, tensors)]
        assert any(step[0] < time < step[-1] for step in steps for time in reduced)


def test_differences_from_one_process_are_logged_once_by_the_master(scripts: Any, tmp_path: Any) -> None:
    source = (
        HEAD
        + """
words = np.random.default_rng(0).integers(0, 9, (16, 5)); tags = words % 3
class Keeps(keras.layers.Layer):
    supports_masking = True
    def build(self, shape):
        self.mean = self.add_weight(shape=(4,), trainable=False, name="mean")
        self.last = self.add_weight(shape=(), dtype="int32", trainable=False, name="last")
        self.fixed = self.add_weight(shape=(4,), trainable=False, name="fixed")
    def call(self, x):
        self.mean.assign(keras.ops.mean(x, axis=(0, 1)))
        self.last.assign(keras.ops.cast(1e6 * keras.ops.sum(x), "int32"))
        return x
class Own(keras.Sequential):
    def train_step(self, batch):
        return super().train_step(batch)
model = tnt.Model(Own([
    keras.Input((5,)), keras.layers.Embedding(9, 4, mask_zero=True), Keeps(name="keeps"),
    keras.layers.BatchNormalization(), keras.layers.Dense(3)], name="mine"))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="sgd", loss=loss, jit_compile=True)
for _ in range(2):
    model.fit(words, tags, sample_weight=np.ones((16, 5)), batch_size=8, verbose=0)
model.fit(tf.data.Dataset.from_tensor_slices((words, tags)).batch(8), batch_size=8, verbose=0)
""".replace("for _", "import tensorflow as tf\nfor _")
    )
    ended = scripts.ranks(2, source, str(tmp_path))
    assert ended.code == 0, ended.err
    said = [line for line in ended.lines if "tarantella: WARNING" in line]
    for part in (
        "BatchNormalization",
        "jit_compile=True",
        "batch_size=8 is ignored",
        "mine (user-defined train_step): its loss is assumed to be a mean over rows",
        "keeps/mean (not trained, but assigned by layers)",
        "keeps/last (assigned by layers, not floats)",
    ):
        assert len([line for line in said if part in line]) == 1, (part, ended.err)


@pytest.mark.real_start
def test_many_runs_end_well(scripts: Any) -> None:
    """Leaves in every order: with calls, a plan and its thread under way on the other ranks, or at once."""
    source = """
import os, random, sys, time
import numpy as np
import tarantella as tnt
from tarantella._job import runtime
random.seed(os.environ["TNT_JOB_ID"] + str(tnt.get_rank()))
tnt.init()
context = runtime.context()
context.plan("tensors", [("w", "float32", (1000,))], 0)
assert context.allreduce(np.ones(3, "float32"))[0] == tnt.get_size()
tnt.Barrier().execute()
time.sleep(random.choice([0, 0, 0.02]))
"""
    for number in range({"gate": 10, "full": 30, "all": 100}[TIER]):
        ended = scripts.ranks(2, source, PYTHONPATH="")  # the exit of users
        assert (ended.code, ended.lines) == (0, []), f"run {number}: {ended}"


def test_only_variables_that_differ_travel(scripts: Any, tmp_path: Any) -> None:
    source = (
        HEAD
        + """
from tarantella import _core
plain, sent = _core.Context.broadcast, []
def counted(self, array, root=0, name=""):
    sent.append(array.nbytes if name == "variables" else 0)
    return plain(self, array, root, name)
_core.Context.broadcast = counted

def travelled(call, *arguments, **options):
    sent.clear()
    call(*arguments, **options)
    return sum(sent)

def same(variables):
    values = np.concatenate([np.asarray(v).ravel().astype("float64") for v in variables])
    everyone = tnt.Allgatherv().execute(values[None])
    return (everyone == everyone[0]).all()

keras.utils.set_random_seed(100 + rank)
inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
model = tnt.Model(inner)
model.compile("adam", "mse")
kernel, seeds = inner.layers[0].kernel, [v for v in inner.variables if v.name == "seed_generator_state"]
a_seed = sum(np.asarray(v).nbytes for v in seeds)

# What is made differently on each rank: kernels, not biases of zeros; nothing of the optimizer before fit.
assert travelled(model.predict, x, verbose=0) == 4 * (4 * 8 + 8) + a_seed
assert same(inner.weights) and not same(seeds)
assert travelled(model.evaluate, x, y, verbose=0) == a_seed
assert travelled(model.fit, x, y, epochs=2, verbose=0) == a_seed
for call in (model.fit, model.evaluate):
    assert travelled(call, x, y, verbose=0) == a_seed
    assert same(inner.weights + inner.optimizer.variables) and not same(seeds)

# The master alone changes one of them, by one bit.
if tnt.is_master_rank():
    value = np.array(kernel)
    value[-1, -1] = np.nextafter(value[-1, -1], np.float32(9))
    kernel.assign(value)
    wanted = value
assert travelled(model.evaluate, x, y, verbose=0) == 4 * 4 * 8 + a_seed
assert same(inner.weights) and (rank or (np.array(kernel) == wanted).all())

# The optimizer's are the master's where they are used.
if rank == 1:
    moment = inner.optimizer.variables[2]
    moment.assign(np.array(moment) + 1)
assert travelled(model.evaluate, x, y, verbose=0) == a_seed and not same(inner.optimizer.variables)
assert travelled(model.fit, x, y, epochs=0, verbose=0) == 4 * 4 * 8 + a_seed
assert same(inner.weights + inner.optimizer.variables)

# Where another rank's random numbers have gone on, it follows the master again.
if rank == 1:
    inner(x, training=True)
before = [np.array(v) for v in seeds]
model.evaluate(x, y, verbose=0)
of_all = tnt.Allgatherv().execute(np.array(seeds)[None])
assert rank == 0 or (np.array(seeds) != before).any()
assert (of_all[0, :, 0] != of_all[1, :, 0]).all() and (of_all[0, :, 1] == of_all[1, :, 1]).all()
"""
    )
    ended = scripts.ranks(2, source, str(tmp_path))
    assert ended.code == 0, ended.err
