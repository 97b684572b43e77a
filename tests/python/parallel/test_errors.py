"""Errors on several ranks end with one line that names the cause, a non-zero exit code and no traceback of ours."""

from __future__ import annotations

from typing import Any

import pytest

HEAD = """
import sys, os, signal, numpy as np, keras, tensorflow as tf
import tarantella as tnt
rank = tnt.get_rank()
x = np.zeros((16, 4), "float32"); y = np.zeros((16, 1), "float32")
def net(layers=1):
    return keras.Sequential([keras.Input((4,)), *[keras.layers.Dense(1) for _ in range(layers)]])
def compiled(model):
    model.compile(optimizer="sgd", loss="mse")
    return model
"""

MISTAKES = {
    "batch size": ("compiled(tnt.Model(net())).fit(x, y, batch_size=0)", "ValueError: batch_size must be at least 1"),
    "batch size type": (
        "compiled(tnt.Model(net())).fit(x, y, batch_size=2.5)",
        "TypeError: batch_size must be a whole number",
    ),
    "no data": ("compiled(tnt.Model(net())).fit()", "ValueError: training data is missing: x is None"),
    "no data to train on": (
        "compiled(tnt.Model(net())).fit(validation_data=(x, y))",
        "ValueError: training data is missing: x is None",
    ),
    "not compiled": ("tnt.Model(net()).fit(x, y)", "ValueError: compile the model before fit"),
    "not compiled to evaluate": ("tnt.Model(net()).evaluate(x, y)", "ValueError: compile the model before evaluate"),
    "not compiled for a batch": ("tnt.Model(net()).train_on_batch(x, y)", "ValueError: compile the model before"),
    "no batches": (
        "compiled(tnt.Model(net())).fit(tf.data.Dataset.from_tensor_slices((x, y)))",
        "ValueError: training data is not batched",
    ),
    "scalars without batches": (
        "compiled(tnt.Model(net())).predict(tf.data.Dataset.from_tensor_slices(x[:, 0]))",
        "ValueError: data to predict is not batched",
    ),
    "empty dataset": (
        "compiled(tnt.Model(net())).fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(4).take(0))",
        "ValueError: training data is empty",
    ),
    "nothing says the shapes": (
        "d = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)\n"
        "d = d.map(lambda a, b: (tf.py_function(lambda t: t, [a], tf.float32), b))\n"
        "compiled(tnt.Model(keras.Sequential([keras.layers.Dense(1)]))).fit(d)",
        "ValueError: the model is not built and the dataset does not say the shapes",
    ),
    "only running would build it": (
        "class Eager(keras.Model):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.out = keras.layers.Dense(1)\n"
        "    def call(self, x):\n"
        "        return self.out(x * x.numpy().max())\n"
        "model = tnt.Model(Eager())\n"
        "model.compile('sgd', 'mse', run_eagerly=True)\n"
        "model.fit(x, y)",
        "ValueError: the model is not built, and only running it eagerly would build it; build it before on every rank",
    ),
    "empty arrays": ("compiled(tnt.Model(net())).fit(x[:0], y[:0])", "ValueError: the data is empty"),
    "no data for Keras": (
        "compiled(tnt.Model(net())).fit([[1, 2], [3, 4]], [1, 2])",
        "ValueError: Keras does not accept data of type list; pass arrays, a batched tf.data.Dataset, a generator",
    ),
    "micro batches that do not fit": (
        "compiled(tnt.Model(net())).fit(x, y, batch_size=10, tnt_micro_batch_size=4)",
        "ValueError: micro batches of 4 on 2 ranks make global batches of 4 * 2 = 8 rows, but training data has "
        "batches of 10",
    ),
    "micro batches that do not fit the dataset": (
        "d = tf.data.Dataset.from_tensor_slices((x, y)).batch(6).prefetch(1)\n"
        "compiled(tnt.Model(net())).evaluate(d, tnt_micro_batch_size=4)",
        "4 * 2 = 8 rows, but evaluation data has batches of 6",
    ),
    "micro batches of a generator": (
        "compiled(tnt.Model(net())).fit((b for b in [(x, y)]), tnt_micro_batch_size=4)",
        "ValueError: a micro batch size needs arrays or a tf.data.Dataset, but training data is a generator",
    ),
    "a switch that is none": (
        "compiled(tnt.Model(net())).fit(x, y, tnt_distribute_dataset='no')",
        "TypeError: tnt_distribute_dataset must be True or False (got 'no')",
    ),
    "labels that are no numbers": (
        "z = y.copy(); z[3] = np.nan; compiled(tnt.Model(net())).fit(x, z, batch_size=4, epochs=2, verbose=0)",
        "ValueError: the loss is nan, and 1 of the labels trained on are",
    ),
    "two kinds of weights for a batch": (
        "compiled(tnt.Model(net())).train_on_batch(x, y, sample_weight=y[:, 0], class_weight={0: 1.0})",
        "ValueError: class_weight and sample_weight cannot be given at the same time",
    ),
    "files that there are not": (
        "d = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)\n"
        "compiled(tnt.Model(net())).fit(tnt.data.Dataset(d, shard='file'))",
        "ValueError: shard='file' needs a dataset that reads files",
    ),
    "pipelining": (
        "tnt.Model(net(), parallel_strategy=tnt.ParallelStrategy.ALL)",
        "NotImplementedError: ParallelStrategy.ALL needs pipelining",
    ),
    "not a model": ("tnt.Model(keras.layers.Dense(1))", "TypeError: tarantella.Model needs a keras.Model (got Dense)"),
}


def test_invalid_arguments_are_refused(scripts: Any) -> None:
    """All in one job: each is caught, and the hook's line is looked at."""
    source = HEAD + "from tarantella._job.report import one_line\nMISTAKES = " + repr(MISTAKES)
    source += """
for name, (code, wanted) in MISTAKES.items():
    try:
        exec(compile(code, "user.py", "exec"))
    except Exception:
        line = one_line(*sys.exc_info()[1:])
        assert line and "\\n" not in line, (name, line)
        assert wanted in line, (name, line)
    else:
        raise AssertionError(name)
print("all seen")
"""
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err
    assert "all seen" in ended.out


STEPS = """
class Own(keras.Model):
    def __init__(self, part):
        super().__init__()
        self.net, self.part = keras.layers.Dense(8), part
    def call(self, x):
        return self.net(x)
    def train_step(self, batch):
        x = batch[0] if isinstance(batch, tuple) else batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.part(self, x))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.oops(loss)
        return {"loss": loss}
    def oops(self, loss):
        pass
def built(part, kind=Own):
    model = kind(part)
    model(np.zeros((1, 8), "float32"))
    return compiled(tnt.Model(model))
z = np.ones((16, 8), "float32")
class Stacked(keras.utils.PyDataset):
    def __len__(self):
        return 3
    def __getitem__(self, i):
        return np.ones((2, 5, 8), "float32")
class Fails(Own):
    def oops(self, loss):
        tf.reshape(loss, (2, 3))  # after the optimizer has made its variables
constant = lambda model, x: model(x) * tf.ones((16, 8))
stacked = lambda model, x: model(x[0]) * model(x[1])
lasts = keras.layers.GRU(2, stateful=True, name="lasts")
series = np.ones((16, 2, 3))
lasting = keras.Sequential([keras.Input((2, 3), batch_size=8), lasts, keras.layers.Dense(1)], name="lasting")
rows = "of the {} rows of a batch, and not for all of them: each rank takes its rows, along axis 0"
TRIALS = [
    (lambda: built(constant).fit(tf.data.Dataset.from_tensors(z).repeat(2)), ValueError, "rank's 8 " + rows.format(16)),
    (lambda: built(constant).fit(z, batch_size=16), ValueError, "rank's 8 " + rows.format(16)),
    (lambda: built(stacked).fit(Stacked()), ValueError, "rank's 1 " + rows.format(2)),
    (lambda: built(lambda model, x: model(x), Fails).fit(((z,) for _ in range(3))), ValueError, "(2, 3)"),
    (lambda: built(lambda model, x: model(x), Fails).fit(z, batch_size=5), ValueError, "(2, 3)"),
    (lambda: compiled(tnt.Model(lasting)).fit(series, y, batch_size=8), ValueError, "own rows; pass stateful=False"),
    (lambda: compiled(tnt.Model(lasting)).evaluate(series, y, batch_size=8), ValueError, "lasts of lasting is"),
]
for call, kind, wanted in TRIALS:
    try:
        call()
    except kind as error:
        assert wanted in str(error) or "[2,3]" in str(error) and wanted == "(2, 3)", error
    else:
        raise AssertionError(wanted)
print("all seen", rank)
"""


def test_user_defined_steps_that_fail(scripts: Any) -> None:
    """The user's own error is shown on all ranks; where the number of rows is the cause, a sentence that says so."""
    ended = scripts.ranks(2, HEAD + STEPS, options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert ended.out.count("all seen") == 2


def test_an_invalid_argument_ends_the_job_with_one_line(scripts: Any) -> None:
    ended = scripts.ranks(2, HEAD + "compiled(tnt.Model(net())).fit(x, y, batch_size=0)\n")
    assert ended.code == 1
    assert "Traceback" not in ended.err
    said = {line for line in ended.lines if "batch_size" in line}
    assert {line[line.index("script.py") :] for line in said} == {
        f"script.py:{HEAD.count(chr(10)) + 1}: ValueError: batch_size must be at least 1 (got 0)"
    }


def test_the_users_own_errors_keep_their_traceback(scripts: Any) -> None:
    source = HEAD + (
        "class Bad(keras.callbacks.Callback):\n"
        "    def on_epoch_end(self, epoch, logs=None):\n"
        "        raise KeyError('mine')\n"
        "compiled(tnt.Model(net())).fit(x, y, callbacks=[Bad()], verbose=0)\n"
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 1
    assert "Traceback" in ended.err
    assert "KeyError: 'mine'" in ended.err


DISAGREEMENTS = [
    ("n = 16 - rank; compiled(tnt.Model(net())).fit(x[:n], y[:n], verbose=0)", "training data: 15 rows"),
    (
        "y[5] = rank; compiled(tnt.Model(net())).fit(x, y, verbose=0)",
        "training data: part 1 with the fingerprint",
    ),
    ("compiled(tnt.Model(net())).fit(x, y, epochs=1 + rank, verbose=0)", "epochs=2"),
    (
        "y[5] = rank\n"
        "d = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)\n"
        "compiled(tnt.Model(net())).fit(d, verbose=0)",
        "rank 1 read other data than rank 0",
    ),
    (
        "d = tf.data.Dataset.from_tensor_slices((x + np.arange(16)[:, None], y)).shuffle(16, seed=rank).batch(4)\n"
        "compiled(tnt.Model(net())).evaluate(d, verbose=0)",
        "rank 1 read other data than rank 0",
    ),
    (
        "compiled(tnt.Model(net())).fit(((np.random.rand(4, 4), y[:4]) for _ in range(5)), verbose=0)",
        "rank 1 read other data than rank 0",
    ),
    (
        "compiled(tnt.Model(net())).evaluate(((x[:4], y[:4]) for _ in range(5 - 2 * rank)), verbose=0)",
        "rank 1 read other data than rank 0",
    ),
    (
        "compiled(tnt.Model(net())).fit(((x[:4], y[:4] if rank else y[:4, 0]) for _ in range(5)), verbose=0)",
        "rank 0 has training data: part 1: TensorSpec(shape=(None,)",
    ),
    (
        "m = compiled(tnt.Model(net())); y[5] = rank\nfor _ in range(2): m.train_on_batch(x, y)",
        "rank 1 read other data than rank 0",
    ),
    (
        "class Own(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        self.model.optimizer.learning_rate = 0.1 * (1 + rank)\n"
        "x[:] = 1; y[:] = 1; compiled(tnt.Model(net())).fit(x, y, batch_size=4, callbacks=[Own()], verbose=0)",
        "rank 1 differs from rank 0 in trained weights: rank 0 has 'sequential/dense/kernel' with the checksum",
    ),
]


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (
            "compiled(tnt.Model(net(1 + rank))).fit(x, y, verbose=0)",
            "rank 1 differs from rank 0 in the model's variables: rank 0 has no more, rank 1 has "
            "'sequential/dense/kernel' float32 (1, 1) (the lists have 2 and 4 entries); build the same model on ",
        ),
        (
            "compiled(tnt.Model(net())).fit(((x[:4], y[:4]) for _ in range(5 - 2 * rank)), verbose=0)",
            " meanwhile; give every rank the same number of batches",
        ),
    ],
)
def test_ranks_that_disagree_end_the_job(code: str, wanted: str, scripts: Any) -> None:
    ended = scripts.ranks(2, HEAD + code + "\n")
    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert any("tarantella.MismatchError" in line and wanted in line for line in ended.lines), ended.err


def test_ranks_that_disagree(scripts: Any) -> None:
    """All in one job: each is caught on both ranks, and the hook's line is looked at."""
    source = HEAD + "from tarantella._job.report import one_line\nTRIALS = " + repr(DISAGREEMENTS)
    source += """
for code, wanted in TRIALS:
    keras.utils.clear_session()  # the first names of layers again
    try:
        exec(compile(code, "user.py", "exec"), {**globals(), "x": x.copy(), "y": y.copy()})
    except tnt.MismatchError:
        line = one_line(*sys.exc_info()[1:])
        assert line and "\\n" not in line and "tarantella.MismatchError" in line and wanted in line, (wanted, line)
    else:
        raise AssertionError(wanted)
print("all seen")
"""
    ended = scripts.ranks(2, source, options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert ended.out.count("all seen") == 2


def test_an_error_of_before_does_not_hide_a_later_mistake(scripts: Any) -> None:
    source = HEAD + (
        "try: tnt.allreduce(np.ones(2 + rank))\n"
        "except tnt.MismatchError: print('caught')\n"
        "model = compiled(tnt.Model(net()))\n"
        "try: model.fit(x, y, batch_size=2.5)\n"
        "except TypeError as error: print('own', error)\n"
        "try: model.fit(x, y)\n"
        "except tnt.MismatchError: print('again')\n"
    )
    ended = scripts.ranks(2, source, options=("--output-on-all-devices",))
    for word in ("caught", "own batch_size must be a whole number", "again"):
        assert ended.out.count(word) == 2, ended.out + ended.err


def test_too_little_memory_for_the_gradients(scripts: Any) -> None:
    source = HEAD + (
        "from tarantella._backend import tensorflow as backend\n"
        "huge = 'dense/kernel', 'float32', (2**40,)\n"
        "backend.plans.plan(keras.optimizers.SGD(), 0, 'the gradients', [huge], tnt.Group().context())\n"
    )
    ended = scripts.ranks(2, source)
    assert ended.code == 1
    assert "Traceback" not in ended.err
    (line,) = {line for line in ended.lines if "MemoryError" in line}
    assert "too little memory for the gradients: 1258" in line


def test_a_gradient_that_fails_on_one_rank_ends_the_job(scripts: Any) -> None:
    """Gradients of later layers are on their way by then: they must not keep the step from ending."""
    source = HEAD + (
        "@tf.custom_gradient\n"
        "def fails(v):\n"
        "    def gradient(upstream):\n"
        "        def work(u):\n"
        "            if rank == 1: raise RuntimeError('my own')\n"
        "            return u\n"
        "        done = tf.py_function(work, [upstream], upstream.dtype)\n"
        "        return tf.ensure_shape(done, upstream.shape)\n"
        "    return v, gradient\n"
        "layers = [keras.layers.Dense(4), keras.layers.Lambda(fails), keras.layers.Dense(4), keras.layers.Dense(1)]\n"
        "compiled(tnt.Model(keras.Sequential([keras.Input((4,)), *layers]))).fit(x, y, batch_size=4, verbose=0)\n"
    )
    ended = scripts.ranks(2, source, timeout=90)
    assert ended.code == 1
    assert "RuntimeError: my own" in ended.err
    assert any("rank 1" in line and "ended with exit code 1" in line for line in ended.lines), ended.err


def test_a_dead_rank_ends_the_job(scripts: Any) -> None:
    source = HEAD + (
        "class Die(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if rank == 1 and batch == 2:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "compiled(tnt.Model(net())).fit(x, y, batch_size=2, epochs=1000, callbacks=[Die()], verbose=0)\n"
    )
    ended = scripts.ranks(2, source, timeout=90)
    assert ended.code == 137
    assert "Traceback" not in ended.err
    assert any("rank 1" in line for line in ended.lines), ended.err


@pytest.mark.parametrize(
    ("call", "what"),
    [
        pytest.param("evaluate(x, verbose=0)", "evaluate", marks=pytest.mark.full),
        pytest.param("predict(x, verbose=0)", "predict", marks=pytest.mark.full),
        ("fit(x, y, verbose=0)", "fit"),
        ("train_on_batch(x, y)", "a batch"),
    ],
)
def test_a_call_on_one_rank_alone(call: str, what: str, scripts: Any) -> None:
    ended = scripts.ranks(2, HEAD + f"m = compiled(tnt.Model(net()))\nif rank == 0: m.{call}\n")
    assert ended.code != 0
    assert "Traceback" not in ended.err
    said = f'"compare data or arguments of {what}"'
    assert any(said in line and "rank 1 has ended" in line for line in ended.lines), ended.err


def test_a_batch_of_another_structure_ends_the_job(scripts: Any) -> None:
    source = HEAD + (
        "def batches():\n"
        "    for i in range(5):\n"
        "        yield (x[:4], y[:4]) if rank == 0 or i < 3 else ((x[:4], x[:4]), y[:4])\n"
        "compiled(tnt.Model(net())).fit(batches(), verbose=0)\n"
    )
    ended = scripts.ranks(2, source, timeout=90)
    assert ended.code != 0
    assert "ValueError: Expected an instance of tuple" in ended.err


@pytest.mark.parametrize(
    "data",
    [
        "((x[:4], own(i)) for i in range(9))",
        "tf.data.Dataset.range(9).map(lambda i: (x[:4], tf.ensure_shape(tf.py_function(own, [i], 'float32'), (4, 1))))",
        "Own(workers=2)",
    ],
    ids=["generator", "map", "PyDataset"],
)
def test_data_that_fail_on_one_rank_end_the_job(data: str, scripts: Any) -> None:
    source = HEAD + (
        "def own(i):\n"
        "    if rank == 1 and i == 5: raise RuntimeError('my own')\n"
        "    return y[:4]\n"
        "class Own(keras.utils.PyDataset):\n"
        "    def __len__(self): return 9\n"
        "    def __getitem__(self, i): return x[:4], own(i)\n"
        f"compiled(tnt.Model(net())).fit({data}, verbose=0)\n"
    )
    ended = scripts.ranks(2, source, timeout=90)
    assert ended.code == 1
    assert "RuntimeError: my own" in ended.err
    assert any("rank 1" in line and "ended with exit code 1" in line for line in ended.lines), ended.err


def test_parts_of_a_batch_that_differ_in_length(scripts: Any) -> None:
    ended = scripts.ranks(2, HEAD + "compiled(tnt.Model(net())).fit(((x[:4], y[:3]) for _ in range(5)), verbose=0)\n")
    assert ended.code == 1
    assert "every part of a global batch must have the same number of rows" in ended.err
