"""A training that is killed goes on from its snapshot: its weights and history are those of one that was not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# 61 rows in batches of 4: the last one has a single row, fewer than ranks.
SCRIPT = """
import json, os, sys, numpy as np, keras, tensorflow as tf
import tarantella as tnt
target, options = sys.argv[1], json.loads(sys.argv[2])
class Kill(keras.callbacks.Callback):
    # In attempt k, the last rank dies before the step that kills[k] gives: 103 is the third of the second fit.
    def __init__(self, fit):
        super().__init__()
        self.count = 100 * fit
    def get_state(self):
        return self.count
    def set_state(self, state):
        self.count = state
    def on_train_batch_begin(self, batch, logs=None):
        self.count += 1
        kill = {} if "TESTS_CALM" in os.environ else dict(options["kills"])
        if tnt.get_rank() == tnt.get_size() - 1 and self.count == kill.get(tnt.restart_count()):
            os.kill(os.getpid(), 9)
class Batches(keras.utils.PyDataset):
    order = np.arange(16)
    def on_epoch_end(self):
        if options["data"] == "augmented":
            np.random.shuffle(self.order)
    def __len__(self):
        return 16
    def __getitem__(self, i):
        i = self.order[i]
        noise = np.random.normal(size=()) if options["data"] == "augmented" else 0
        return x[4 * i: 4 * i + 4] + noise, y[4 * i: 4 * i + 4]
x = np.random.default_rng(0).normal(size=(61, 5)).astype("float32"); y = x[:, :1] - x[:, 1:2]
rows = tf.data.Dataset.from_tensor_slices((x, y))
if options.get("seeded", True):
    keras.utils.set_random_seed(1)
given = {
    "arrays": lambda: dict(x=x, y=y, batch_size=4),
    "in order": lambda: dict(x=x, y=y, batch_size=4, shuffle=False),
    "few steps": lambda: dict(x=x, y=y, batch_size=4, steps_per_epoch=7),
    "pipeline": lambda: dict(x=rows.shuffle(61, seed=options.get("seed")).batch(4)),
    "repeated": lambda: dict(x=rows.shuffle(61).repeat().batch(4), steps_per_epoch=10),
    "two passes": lambda: dict(x=rows.shuffle(61).repeat(2).batch(4)),
    "unknown length": lambda: dict(x=rows.shuffle(61).filter(lambda a, b: a[0] > -1).batch(4)),
    "generator": lambda: dict(x=((x[i: i + 4], y[i: i + 4]) for _ in range(9) for i in range(0, 60, 4)),
                              steps_per_epoch=9),
    "drawing generator": lambda: dict(x=((x[i: i + 4] + np.random.normal(size=()), y[i: i + 4])
                                         for _ in range(9) for i in range(0, 60, 4)), steps_per_epoch=9),
    "PyDataset": lambda: dict(x=Batches(), shuffle=True),
    "augmented": lambda: dict(x=Batches(), shuffle=True),
    "flips": lambda: dict(x=rows.batch(4).map(
        lambda a, b, flip=keras.layers.GaussianNoise(0.1, seed=1): (flip(a, training=True), b))),
    "draws": lambda: dict(x=rows.map(
        lambda a, b, g=tf.random.Generator.from_seed(1): (a + g.normal([5]), b)).batch(4)),
}[options["data"]]()
layers = [keras.layers.Dense(7, "tanh")]
if not options.get("is_plain"):
    layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
model = tnt.Model(keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(options.get("outputs", 1))]))
model.compile("adam", "mse", metrics=["mae"], steps_per_execution=options.get("at_once", 1))
def fit(number, epochs):
    snapshot = tnt.keras.callbacks.Snapshot(every=5, folder=options.get("folder"))
    stop = keras.callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=1, factor=0.5, min_delta=0.2)
    called = model.fit(**given, epochs=epochs, verbose=0, callbacks=[Kill(number), stop, plateau, snapshot],
                       validation_data=(x[:9], y[:9]))
    return [called.epoch, {name: list(map(float, values)) for name, values in called.history.items()}]
# A generator is read once; the order of the next call on a shuffle().repeat() depends on what TensorFlow reads ahead.
histories = [fit(0, 3), *([fit(1, 2)] if options["data"] not in ("generator", "drawing generator", "repeated") else [])]
if tnt.is_master_rank():
    kept = [*model.variables, *model.optimizer.variables]
    np.savez(target, *map(np.array, (v for v in kept if v.name != "seed_generator_state")))
    print("histories", json.dumps(histories))
"""


def start(
    scripts: Any, ranks: int, target: Path, kills: Any = (), restarts: int = 0, is_calm: bool = False, **options: Any
) -> Any:
    """`is_calm`: without the kills, with the same arguments."""
    options["kills"] = list(enumerate(kills))
    calm = {"TESTS_CALM": "1"} if is_calm else {}
    how = (f"--max-restarts={restarts}",)
    return scripts.ranks(ranks, SCRIPT, str(target), json.dumps(options), options=how, **calm)


def train(scripts: Any, ranks: int, target: Path, kills: tuple[int, ...] = (), **options: Any) -> Any:
    ended = start(scripts, ranks, target, kills, restarts=3, **options)
    assert ended.code == 0, ended.err
    restarts = 0 if options.get("is_calm") else len(kills)
    assert ended.err.count("tarantella: restart ") == restarts
    assert restarts == 0 or "tarantella: training resumes from epoch " in ended.err
    (line,) = [line for line in ended.out.splitlines() if line.startswith("histories")]
    with np.load(target) as found:
        return json.loads(line.removeprefix("histories")), [found[name] for name in found.files], ended


def check_same(one: Any, other: Any) -> None:
    assert one[0] == other[0]
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(a, b)


FEW = [("arrays", (35, 121)), ("pipeline", (35, 103, 112))]
MORE = [
    ("in order", (3, 33)),
    ("few steps", (12, 104)),
    ("repeated", (18,)),
    ("two passes", (50,)),
    ("unknown length", (20, 40)),
    ("generator", (13,)),
    ("drawing generator", (13,)),
    ("PyDataset", (21, 41)),
    ("augmented", (21, 41)),
]


@pytest.mark.parametrize(("data", "kills"), [*FEW, *(pytest.param(*each, marks=pytest.mark.full) for each in MORE)])
def test_a_killed_training_goes_on_at_its_step(data: str, kills: Any, scripts: Any, tmp_path: Path) -> None:
    unbroken = train(scripts, 2, tmp_path / "unbroken.npz", data=data)
    check_same(unbroken, train(scripts, 2, tmp_path / "killed.npz", kills, data=data))


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.full), pytest.param(4, marks=pytest.mark.full)])
def test_on_other_numbers_of_ranks(ranks: int, scripts: Any, tmp_path: Path) -> None:
    unbroken = train(scripts, ranks, tmp_path / "unbroken.npz", data="pipeline")
    check_same(unbroken, train(scripts, ranks, tmp_path / "killed.npz", (35,), data="pipeline"))


@pytest.mark.full
def test_several_steps_in_one_call(scripts: Any, tmp_path: Path) -> None:
    unbroken = train(scripts, 2, tmp_path / "unbroken.npz", data="arrays", at_once=3)
    check_same(unbroken, train(scripts, 2, tmp_path / "killed.npz", (9,), data="arrays", at_once=3))


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_goes_on_from_a_folder(ranks: int, scripts: Any, tmp_path: Path) -> None:
    how = {"data": "pipeline", "is_plain": True}
    unbroken = train(scripts, 2, tmp_path / "unbroken.npz", **how)
    folder = str(tmp_path / "snapshots")
    assert start(scripts, 2, tmp_path / "killed.npz", (35,), folder=folder, **how).code == 137
    found = train(scripts, ranks, tmp_path / "killed.npz", (35,), folder=folder, is_calm=True, **how)
    for one, other in zip(unbroken[0], found[0], strict=True):
        assert one[0] == other[0]
        for name, values in one[1].items():
            np.testing.assert_allclose(values, other[1][name], rtol=1e-4, err_msg=name)
    for one, other in zip(unbroken[1], found[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_what_a_snapshot_cannot_be_used_for_is_said_before_training(scripts: Any, tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    options: dict[str, Any] = {"data": "in order", "folder": str(folder)}
    assert start(scripts, 2, tmp_path / "w.npz", (12,), **options).code == 137
    whole = (folder / "snapshot.npz").read_bytes()

    def refused(**changed: Any) -> str:
        ended = start(scripts, 2, tmp_path / "w.npz", **{**options, **changed})
        assert ended.code == 1, ended.out + ended.err
        (said,) = {
            each.partition("ValueError: Snapshot: ")[2] for each in ended.err.splitlines() if "Snapshot: " in each
        }
        return str(said)

    assert "is from another model: there 'sequential/dense/kernel'" in refused(outputs=2)
    assert "a map draws from a generator" in refused(data="draws")
    assert "or is a layer that does" in refused(data="flips")
    (folder / "snapshot.npz").write_bytes(whole[:-100])
    assert "it is not a whole snapshot of this version; remove it" in refused()
    text = whole.replace(b'"script": "', b'"script": "0')  # its checksum is another one, too
    assert text != whole
    (folder / "snapshot.npz").write_bytes(text)
    assert "is not a whole snapshot" in refused()


def test_another_version_of_the_script_is_refused(scripts: Any, tmp_path: Path) -> None:
    options = {"data": "in order", "folder": str(tmp_path / "snapshots"), "kills": [[0, 12]]}
    assert scripts.ranks(2, SCRIPT, "w.npz", json.dumps(options)).code == 137
    for script, target in ((SCRIPT + "# changed\n", "w.npz"), (SCRIPT, "other.npz")):
        ended = scripts.ranks(2, script, target, json.dumps(options))
        assert ended.code == 1
        assert "is from another version of" in ended.err


BETWEEN = """
import os, sys, keras, numpy as np
import tarantella as tnt
class Kill(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.count = 0  # get_state() can be asked from here on
    def get_state(self):
        return self.count
    def set_state(self, count):
        self.count = count
    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        if len(sys.argv) > 2 and self.count == 13 and second and tnt.restart_count() == 0 and tnt.get_rank() == 1:
            os.kill(os.getpid(), 9)
second = False
keras.utils.set_random_seed(1)
x = np.random.normal(size=(40, 4)).astype("float32")
model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
model.compile("adam", "mse")
best = keras.callbacks.ModelCheckpoint("best.weights.h5", "loss", save_best_only=True, save_weights_only=True)
log = keras.callbacks.CSVLogger(sys.argv[1], append=True)
calls = [tnt.keras.callbacks.Snapshot(5), best, Kill(), log]
first = model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=calls)
order = np.random.permutation(40)
print("between", order, best.best)
second = True
then = model.fit(x[order], x[order, :1], batch_size=4, epochs=3, verbose=0, callbacks=calls)
print("after", first.history, then.history, best.best, float(np.sum(model.get_weights()[0])))
"""


def test_what_is_between_two_fits(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    for arguments in ((), ("kill",)):
        log = tmp_path / f"{len(arguments)}.csv"
        ended = scripts.ranks(2, BETWEEN, str(log), *arguments, options=("--max-restarts=3",))
        assert ended.code == 0, ended.err
        assert ended.err.count("tarantella: restart ") == len(arguments)
        lines = [line for line in ended.out.splitlines() if line.startswith(("between", "after", "         "))]
        lines = lines[-lines[::-1].index(next(each for each in lines[::-1] if each.startswith("between"))) - 1 :]
        found.append([*lines, log.read_text()])  # of the last attempt
    assert found[0] == found[1] and any(each.startswith("after") for each in found[0])


def test_data_that_a_restart_cannot_read_again(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = """
import sys, keras, numpy as np, tensorflow as tf
import tarantella as tnt
class Batches(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(1)
    def __len__(self):
        return 2
    def __getitem__(self, i):
        return np.ones((4, 4)), np.ones(4)
keras.utils.set_random_seed(1)
model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse")
validation = tf.data.Dataset.from_tensor_slices((np.ones((8, 4)), np.ones(8))).shuffle(8).batch(4)
data = {"x": Batches()} if sys.argv[1] == "own" else {"x": validation, "validation_data": validation}
model.fit(**data, verbose=0, callbacks=[tnt.keras.callbacks.Snapshot(5, "snapshots")])
"""
    ended = scripts.ranks(2, script, "own")
    assert ended.code == 1
    assert "the PyDataset has a generator of its own (rng)" in ended.err
    for ranks in (1, 2):
        ended = scripts.ranks(ranks, script, "validation")
        assert ended.code == 0, ended.err
        assert "the validation data is shuffled" in ended.err


def test_a_job_without_snapshots_has_none_of_it(scripts: Any) -> None:
    script = """
import os, sys, keras, numpy as np
import tarantella as tnt
model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse")
model.fit(np.ones((8, 4)), np.ones(8), verbose=0)
links = [os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd")]
assert not [each for each in links if os.path.lexists(each) and "tarantella-snapshot" in os.readlink(each)]
assert "TNT_SNAPSHOT_FDS" not in os.environ
assert not [each for each in sys.modules if each.startswith("tarantella.keras.snapshots")]
"""
    ended = scripts.ranks(2, script)
    assert ended.code == 0, ended.err


def test_without_a_place_or_a_seed(scripts: Any, tmp_path: Path) -> None:
    ended = start(scripts, 2, tmp_path / "w.npz", data="in order")
    assert ended.code == 0
    assert "Snapshot saves nothing: pass folder=" in ended.err
    for data, what in (("arrays", "arrays are shuffled without a seed"), ("pipeline", "a shuffle has no seed")):
        ended = start(scripts, 1, tmp_path / "w.npz", data=data, seeded=False, folder=str(tmp_path / "snapshots"))
        assert ended.code == 1
        assert what in ended.err


@pytest.mark.parametrize("how", ["TERM", "time limit"])
def test_a_training_that_shall_stop_saves_once(how: str, scripts: Any, tmp_path: Path) -> None:
    script = SCRIPT.replace("epochs=epochs", "epochs=100 * epochs").replace("patience=3,", "patience=1000,")
    if how == "TERM":
        script = script.replace("        self.count += 1\n", "        self.count += 1\n        stop(self.count)\n")
        script = (
            "import os, signal, tarantella as tnt\n"
            "def stop(count):\n"
            "    if count == 20 and tnt.get_rank() == 1: os.kill(os.getpid(), signal.SIGTERM)\n" + script
        )
    else:
        script = script.replace('folder=options.get("folder")', 'folder=options.get("folder"), time_limit=1')
    script = script.replace("every=5", "every=10**6")
    options = {"data": "pipeline", "folder": str(tmp_path / "snapshots"), "kills": []}
    ended = scripts.ranks(2, script, "w.npz", json.dumps(options))
    assert ended.code == 75, ended.err
    assert "the state of training is saved in the folder" in ended.err
    with np.load(tmp_path / "snapshots" / "snapshot.npz") as found:
        text = json.loads(found["snapshot.json"].tobytes())
    assert 0 < text["steps"] < 4800
    assert text["sequence"] == 1  # none was due before


def test_the_loop_of_the_page_goes_on(scripts: Any, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "restart.md").read_text()
    (loop,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "CheckpointManager" in block]
    kill = (
        "    if step == 25 and tnt.restart_count() == 0 and tnt.get_rank() == 1:\n        os.kill(os.getpid(), 9)\n"
        "    if tnt.restart_count(): assert step > 20\n"
    )
    assert loop.count('"checkpoints"') == loop.count("    step.assign_add(1)\n") == 1
    begin = """
import os, keras, numpy as np, tensorflow as tf
import tarantella as tnt
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(61, 4)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(61).batch(4).repeat(3)
"""
    end = "if tnt.is_master_rank(): print([np.asarray(v).tolist() for v in model.variables + optimizer.variables])"
    outputs = []
    for name, more, restarts in (("unbroken", "", 0), ("killed", kill, 1)):
        made = loop.replace('"checkpoints"', repr(str(tmp_path / name)))
        made = made.replace("    step.assign_add(1)\n", "    step.assign_add(1)\n" + more)
        ended = scripts.ranks(2, begin + made + end, options=(f"--max-restarts={restarts}",))
        assert ended.code == 0, ended.err
        assert ended.err.count("tarantella: restart ") == restarts
        outputs.append(ended.out)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 100


GAN = """
import os, sys, keras, numpy as np, tensorflow as tf
import tarantella as tnt
class Kill(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1 and tnt.restart_count() == 0 and tnt.get_rank() == 1 and sys.argv[1] == "kills":
            os.kill(os.getpid(), 9)
class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.other = keras.layers.Dense(3), keras.layers.Dense(1)
        self.total = keras.metrics.Mean(name="total")
    def compile(self, first, second):
        super().compile()
        self.first, self.second = first, second
    @property
    def metrics(self):
        return [self.total]
    def call(self, x):
        return self.other(self.one(x))
    def train_step(self, data):
        x, y = data
        for layer, optimizer in ((self.one, self.first), (self.other, self.second)):
            with tf.GradientTape() as tape:
                loss = keras.ops.mean((self(x) - y) ** 2)
            variables = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
        self.total.update_state(loss)
        return {"total": self.total.result()}
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(61, 4)).astype("float32")
model = tnt.Model(Gan())
model.build((None, 4))
model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02))
log = keras.callbacks.CSVLogger(f"{sys.argv[2]}.csv")
calls = [Kill(), log, tnt.keras.callbacks.Snapshot(5)]
history = model.fit(x, x[:, :1], batch_size=4, epochs=4, verbose=0, callbacks=calls)
if tnt.is_master_rank():
    print(history.history, open(f"{sys.argv[2]}.csv").read())
    print([np.asarray(v).tolist() for v in model.variables])
"""


def test_own_steps_with_several_optimizers_and_a_log(scripts: Any, tmp_path: Path) -> None:
    calm = scripts.ranks(2, GAN, "is calm", str(tmp_path / "calm"), options=("--max-restarts=1",))
    killed = scripts.ranks(2, GAN, "kills", str(tmp_path / "killed"), options=("--max-restarts=1",))
    assert (calm.code, killed.code) == (0, 0), calm.err + killed.err
    assert killed.err.count("tarantella: restart ") == 1
    assert calm.out == killed.out
    assert calm.out.count("\n") > 5


SIGNALLED = """
import os, signal, sys, time, keras, numpy as np
import tarantella as tnt
what, folder = sys.argv[1:]
class Signal(keras.callbacks.Callback):
    raises = False
    def on_epoch_end(self, epoch, logs=None):
        if self.raises:
            raise RuntimeError
    def on_test_begin(self, logs=None):
        if what == "last validation":
            os.kill(os.getpid(), signal.SIGTERM)
    def on_train_batch_begin(self, batch, logs=None):
        self.steps = getattr(self, "steps", 0) + 1
        if what == "after a restart":
            time.sleep(0.1 * bool(os.path.exists("second")))
            if self.steps == 1000 or (os.path.exists("second") and self.steps == 2):
                os.kill(os.getpid(), signal.SIGTERM)
keras.utils.set_random_seed(1)
model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse")
x = np.ones((64, 4), "float32")
given = dict(batch_size=4, epochs=1 if what == "last validation" else 1000, verbose=0, validation_data=(x, x[:, :1]))
for _ in range(2):
    if what == "raises":
        try:
            raising = Signal()
            raising.raises = True
            calls = [raising, tnt.keras.callbacks.Snapshot(5, folder)]
            model.fit(x, x[:, :1], callbacks=calls, **given | {"epochs": 1})
        except RuntimeError:
            print("raised", flush=True)
        given["epochs"] = 2
    every = 10**6 if what == "after a restart" else 5  # a file takes as long as many steps
    history = model.fit(x, x[:, :1], callbacks=[Signal(), tnt.keras.callbacks.Snapshot(every, folder)], **given)
    print("history", history.history, flush=True)
"""


def test_a_signal_in_the_last_validation_is_not_lost(scripts: Any, tmp_path: Path) -> None:
    for expected in (0, 1, 2):  # completed fits
        ended = scripts.ranks(2, SIGNALLED, "last validation", str(tmp_path / "s"))
        assert ended.code == (75 if expected < 2 else 0), ended.err
        assert ended.out.count("history") == expected


def test_a_signal_to_slow_steps_after_a_restart_is_not_late(scripts: Any, tmp_path: Path) -> None:
    script = SIGNALLED.replace('"second"', repr(str(tmp_path / "second")))
    assert scripts.ranks(2, script, "after a restart", str(tmp_path / "s")).code == 75
    (tmp_path / "second").touch()
    # 16,000 steps would take half an hour
    assert scripts.ranks(2, script, "after a restart", str(tmp_path / "s"), timeout=200).code == 75


def test_fits_that_raise_are_counted(scripts: Any, tmp_path: Path) -> None:
    first, second = (scripts.ranks(2, SIGNALLED, "raises", str(tmp_path / "s")) for _ in range(2))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert first.out.count("raised") == 2
    assert first.out == second.out


def test_a_plain_model_and_a_folder_that_cannot_be(scripts: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = scripts.ranks(2, SIGNALLED, "-", str(tmp_path / "file" / "folder"))
    assert ended.code == 1
    assert "file/folder' cannot be used: " in ended.err
    plain = SIGNALLED.replace("tnt.Model(", "(").replace("else 1000", "else 1")
    ended = scripts.ranks(2, plain, "-", str(tmp_path / "s"))
    assert ended.code == 0
    assert "Snapshot saves nothing of a plain Keras model" in ended.err
