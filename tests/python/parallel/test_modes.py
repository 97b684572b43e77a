"""Steps compiled by XLA: their operations, lost ranks, unsupported cases; and gradients of two bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import os, re, signal, sys, time, numpy as np, keras, tensorflow as tf
import tarantella as tnt
from tarantella._job import runtime
from tarantella._backend import steps, tensorflow as backend
rank = tnt.get_rank()
x = np.ones((16, 4), "float32"); y = np.zeros((16, 1), "float32")
def net():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
def compiled(model, **options):
    model.compile(optimizer="sgd", loss="mse", jit_compile=True, **options)
    return model
"""


def test_a_compiled_step_has_one_call_for_all_gradients(scripts: Any, tmp_path: Path) -> None:
    """And one for each exchange of a synchronized layer, each with a result of the one before: that orders them."""
    source = HEAD + (
        "from tarantella.data.tf_data.slicer import micro_batch\n"
        "inputs = keras.Input((4,))\n"
        "branches = [keras.layers.BatchNormalization(synchronized=True)(inputs) for _ in range(2)]\n"
        "outputs = keras.layers.Dense(1)(keras.layers.Add()(branches))\n"
        "model = compiled(tnt.Model(keras.Model(inputs, outputs)))\n"
        "model.fit(x, y, batch_size=4, epochs=2, verbose=0)\n"
        "count = tf.constant(8, tf.int64)\n"
        "batch = micro_batch((tf.constant(x[:8]), tf.constant(y[:8])), count, 2 * count, count, padded=False)\n"
        "step = tf.function(model.keras_model.train_step, jit_compile=True)\n"
        "text = step.experimental_get_compiler_ir(batch)(stage='optimized_hlo')\n"
        "calls = re.findall('(%\\S+) = .* custom-call[(](.*?)[)], custom_call_target=.tarantella_allreduce', text)\n"
        "assert len(calls) == 3, text\n"
        "assert all(before in operands for (before, _), (_, operands) in zip(calls, calls[1:])), calls\n"
        "before = model.train_function\n"
        "model.fit(x[:4], y[:4], batch_size=2, tnt_distribute_dataset=False, verbose=0)\n"
        "assert model.jit_compile and model.train_function is before\n"
        "def own(batch, logs):\n"
        "    model.evaluate(x[:4], y[:4], batch_size=2, tnt_distribute_dataset=False, verbose=0)\n"
        "model.fit(x, y, batch_size=4, epochs=2, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=own)])\n"
        "print('counted')\n"
    )
    ended = scripts.ranks(2, source, options=("--timeline", str(tmp_path / "timeline.json")))
    assert ended.code == 0, ended.err
    assert "counted" in ended.out
    events = [each for each in json.loads((tmp_path / "timeline.json").read_text())["traceEvents"] if each["pid"] == 0]
    track = [each["tid"] for each in events if each.get("args", {}).get("name") == "the gradients: gradients ready"]
    assert len(track) == 1, "one plan for the optimizer"
    first = min((each for each in events if each["name"] == "fit"), key=lambda each: each["ts"])
    ready = [each["ts"] for each in events if each.get("cat") == "gradient" and each["tid"] == track[0]]
    assert len([ts for ts in ready if ts < first["ts"] + first["dur"]]) == 6 * 2 * 4  # gradients, epochs, steps


@pytest.mark.full
def test_a_rank_that_leaves_ends_a_compiled_step(scripts: Any) -> None:
    """Inside the step: the launcher knows nothing, as the process lives on."""
    source = HEAD + (
        "seen = sys.argv[1]\n"
        "class Leave(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if rank == 1 and batch == 2:\n"
        "            runtime.close()\n"
        "            while not os.path.exists(seen): time.sleep(0.1)\n"
        "            os._exit(0)\n"
        "try:\n"
        "    compiled(tnt.Model(net())).fit(x, y, batch_size=2, callbacks=[Leave()], verbose=0)\n"
        "except tnt.PeerLostError as error:\n"
        "    print('caught', error)\n"
        "finally:\n"
        "    open(seen, 'w').close()\n"
    )
    ended = scripts.ranks(2, source, str(scripts.folder / "seen"), timeout=120)
    assert ended.code == 0, ended.err
    assert "caught" in ended.out
    assert "rank 1 has ended" in ended.out


def test_a_dead_rank_ends_a_compiled_job(scripts: Any) -> None:
    source = HEAD + (
        "class Die(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if rank == 1 and batch == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "compiled(tnt.Model(net())).fit(x, y, batch_size=2, epochs=1000, callbacks=[Die()], verbose=0)\n"
    )
    ended = scripts.ranks(2, source, timeout=120)
    assert ended.code == 137
    assert "Traceback" not in ended.err
    assert any("rank 1" in line for line in ended.lines), ended.err


@pytest.mark.full
def test_where_xla_has_no_custom_calls_training_and_evaluation_do_without(scripts: Any) -> None:
    source = HEAD + (
        "sys.modules['tensorflow.compiler.tf2xla.ops'] = None\n"
        "class Watched(keras.Sequential):\n"
        "    def train_step(self, batch):\n"
        "        assert not backend.plans.is_xla()\n"
        "        return super().train_step(batch)\n"
        "    def test_step(self, batch):\n"
        "        assert not backend.plans.is_xla()\n"
        "        return super().test_step(batch)\n"
        "    def predict_step(self, batch):\n"
        "        assert backend.plans.is_xla()\n"
        "        return super().predict_step(batch)\n"
        "model = compiled(tnt.Model(Watched(net().layers)))\n"
        "for _ in range(2): model.fit(x, y, batch_size=4, validation_data=(x, y), verbose=0)\n"
        "model.evaluate(x, y, verbose=0); model.predict(x, verbose=0)\n"
        "assert model.jit_compile\n"
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err
    said = [line for line in ended.lines if "jit_compile=True is switched off for" in line]
    assert len(said) == 2 and "training" in said[0] and "evaluation" in said[1], ended.err


@pytest.mark.full
def test_a_user_defined_sparse_gradient_is_made_dense_under_xla_with_a_warning(scripts: Any) -> None:
    source = HEAD + (
        "class Table(keras.layers.Layer):\n"
        "    def build(self, shape): self.table = self.add_weight(shape=(5, 2), name='table')\n"
        "    def call(self, words): return tf.gather(self.table, words)\n"
        "    def compute_output_shape(self, shape): return (*shape, 2)\n"
        "layers = [keras.Input((4,), dtype='int32'), Table(), keras.layers.Flatten(), keras.layers.Dense(1)]\n"
        "model = compiled(tnt.Model(keras.Sequential(layers)))\n"
        "model.fit(x.astype('int32'), y, batch_size=4, verbose=0)\n"
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err
    assert any("makes the sparse gradient of 'sequential/table/table' dense" in line for line in ended.lines), ended.err


@pytest.mark.parametrize(
    "mode", ["", *(pytest.param(mode, marks=pytest.mark.full) for mode in ("run_eagerly=True", "jit_compile=True"))]
)
def test_gradients_of_two_bytes_travel_as_they_are(mode: str, scripts: Any) -> None:
    """Sums of rounded parts are not those of one process, so they are compared to what the type can tell apart."""
    source = HEAD + (
        "for dtype in ('float16', 'bfloat16'):\n"
        "    trained = []\n"
        "    for wrap in (tnt.Model, lambda model: model):\n"
        "        keras.backend.clear_session(); keras.utils.set_random_seed(1)\n"
        "        layers = [keras.layers.Dense(n, dtype=dtype) for n in (3, 1)]\n"
        "        model = wrap(keras.Sequential([keras.Input((4,), dtype=dtype), *layers]))\n"
        f"        model.compile('sgd', 'mse', {mode})\n"
        "        model.fit(x, y + 1, batch_size=4, verbose=0)\n"
        "        trained.append([w.astype('float64') for w in model.get_weights()])\n"
        "        if wrap is tnt.Model:\n"
        "            (key,) = steps._plans[model.optimizer]\n"
        "            assert {name for _, name in key[2:]} == {dtype}, key\n"
        "    for ours, plain in zip(*trained):\n"
        "        np.testing.assert_allclose(ours, plain, atol=0.03)\n"
        "print('near')\n"
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err
    assert "near" in ended.out


@pytest.mark.full
def test_repeated_rows_are_added_alike_by_many_threads(scripts: Any) -> None:
    """TensorFlow's threads add the slices of one row in any order: left to them, ranks drift apart by rounding."""
    source = HEAD.replace(
        "import tarantella", "tf.config.threading.set_intra_op_parallelism_threads(4); import tarantella", 1
    )
    source += (
        "x = np.random.default_rng(0).integers(0, 5, (512, 64)); y = np.ones((512, 1), 'float32')\n"
        "for optimizer in (keras.optimizers.SGD(), keras.optimizers.LossScaleOptimizer(keras.optimizers.Adagrad())):\n"
        "    layers = [keras.layers.Embedding(5, 16), keras.layers.Flatten(), keras.layers.Dense(1)]\n"
        "    model = tnt.Model(keras.Sequential([keras.Input((64,), dtype='int32'), *layers]))\n"
        "    model.compile(optimizer, 'mse')\n"
        "    model.fit(x, y, batch_size=256, epochs=15, verbose=0)\n"
        "print('together')\n"
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err
    assert "together" in ended.out
