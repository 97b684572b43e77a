"""Saving on several ranks: one complete file that every rank and plain Keras can load, and no rank is kept waiting."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HEAD = """
from keras.models import save_model as save_model_of_before
import os, signal, sys, time, numpy as np, keras
import tarantella as tnt
rank, folder = tnt.get_rank(), sys.argv[1]
path = lambda name: os.path.join(folder, name)
x = np.arange(32.0, dtype="float32").reshape(16, 2); y = x[:, :1] - x[:, 1:]
def net():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model = tnt.Model(net())
model.compile("adam", keras.losses.MeanSquaredError())
model.fit(x, y, batch_size=4, verbose=0)
"""

SAVES = """
kinds = {"save": ["a.keras", "nested/c.keras", "older"], "save_weights": ["d.weights.h5", "weights"]}
if tnt.is_master_rank():
    os.makedirs(path("nested")); time.sleep(1.5)  # the others are there long before it
    for name in ("older", "weights"):  # as Keras 2 left it: SavedModel's folder, a checkpoint's
        os.makedirs(path(name + "/variables")); open(path(name + "/saved_model.pb"), "w").close()
for method, names in kinds.items():
    for name in names:
        getattr(model, method)(path(name))
        if method == "save":  # it is there, whole, on every rank
            loaded = tnt.models.load_model(path(name))
            assert type(loaded) is tnt.Model and loaded.parallel_strategy == tnt.ParallelStrategy.DATA
        else:
            loaded = tnt.Model(net())
            loaded.load_weights(path(name))
        assert all((a == b).all() for a, b in zip(loaded.get_weights(), model.get_weights()))
tnt.models.load_model(path("a.keras")).save(path("b.h5"))
# the master alone, before and after a save of all: nobody waits for it, nor takes its file for the next one
if tnt.is_master_rank():
    model.save(path("alone.keras"))
    model.save(path("again.keras"))
together = tnt.Group([1, 0])
tnt.Barrier(together).execute()  # a group's meeting does not count, the job's does
tnt.Barrier().execute()
mark = os.path.getmtime(path("again.keras"))
if tnt.is_master_rank():
    time.sleep(0.5)
model.save(path("again.keras"))
assert os.path.getmtime(path("again.keras")) > mark
model.save(path("again.keras"))
tnt.models.save_model(model.keras_model, path("mine.keras"), overwrite=True)
model.save(path(f"rank_{rank}.keras"), tnt_save_all_devices=True)
tnt.models.save_model(model, path(f"ranks_{rank}.keras"), tnt_save_all_ranks=True)
model.save_weights(path(f"ranks_{rank}.weights.h5"), tnt_save_all_ranks=True)
assert all(os.path.exists(path(name + f"_{rank}" + suffix))
           for name, suffix in (("rank", ".keras"), ("ranks", ".keras"), ("ranks", ".weights.h5")))
model.export(path("exported"), verbose=False)
assert os.path.exists(path("exported/saved_model.pb"))
tnt.models.clone_model(model).set_weights(model.get_weights())
model.fit(x, y, batch_size=4, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(path("callback.keras"))])
# what Keras's functions write, its methods write: once, unless the model is none of ours
class Saves(keras.callbacks.Callback):
    def on_test_end(self, logs=None):
        save_model_of_before(self.model, path(f"callback-{rank}.keras"))
        keras.saving.save_weights(self.model, path(f"callback-{rank}.weights.h5"))
        keras.saving.save_model(other, path(f"other-{rank}.keras"))
other = net()
model.evaluate(x, y, verbose=0, callbacks=[Saves()])
keras.saving.save_model(model, path(f"function-{rank}.keras"))
keras.saving.save_weights(model, path(f"function-{rank}.weights.h5"), overwrite=True)
save_model_of_before(model, path(f"function-{rank}.h5"))
tnt.Barrier().execute()
made = sorted(name for name in os.listdir(folder) if "-" in name)
assert made == ["callback-0.keras", "callback-0.weights.h5", "function-0.h5", "function-0.keras",
                "function-0.weights.h5", "other-0.keras", "other-1.keras"], made
if rank == 0:
    np.savez(path("expected.npz"), *model.get_weights())
    left = [name for name in os.listdir(folder) if "partial" in name]
    assert not left, left
print("done", rank)
"""

LOADS = """
import os, sys, numpy as np, keras
folder = sys.argv[1]
path = lambda name: os.path.join(folder, name)
expected = np.load(path("expected.npz"))
for name in ("a.keras", "b.h5", "nested/c.keras", "older.keras", "alone.keras", "again.keras", "mine.keras",
             "rank_0.keras", "rank_1.keras", "callback-0.keras", "function-0.keras", "function-0.h5",
             "callback.keras"):
    model = keras.models.load_model(path(name))
    assert model.compiled and model.optimizer.iterations.numpy() in (4, 8), name
    last = model
for weights, array in zip(last.get_weights(), expected.values()):
    assert (weights == array).all()
for name in ("callback-0.weights.h5", "function-0.weights.h5", "d.weights.h5", "weights.weights.h5"):
    last.load_weights(path(name))
layer = keras.layers.TFSMLayer(path("exported"), call_endpoint="serve")
np.testing.assert_allclose(layer(np.ones((2, 2), "float32")), last.predict(np.ones((2, 2)), verbose=0), 1e-5, 1e-5)
assert "tarantella" not in sys.modules
print("plain")
"""


def test_every_rank_and_plain_keras_can_load_what_was_saved(scripts: Any, folder: Path) -> None:
    saved = scripts.ranks(2, HEAD + SAVES, str(folder), options=("--output-on-all-devices",))
    assert saved.code == 0, saved.err
    assert saved.out.count("done") == 2
    assert "Keras 3 needs a suffix" in saved.err
    loaded = scripts.plain(LOADS, str(folder))
    assert "plain" in loaded.out, loaded.err


# Within a save, so that it is cut off half-way: by the layer's own variables.
CUT = """
import shutil
C = keras.callbacks
class Cut(keras.layers.Dense):
    armed = None
    def save_own_variables(self, store):
        if Cut.armed is not None:
            Cut.armed()
        super().save_own_variables(store)
def stop(): raise OSError("disk full")
def die(): os.kill(os.getpid(), signal.SIGKILL)
def cut():
    keras.utils.set_random_seed(1)
    model = tnt.Model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), Cut(1)]))
    model.compile("adam", "mse")
    return model
def fit(model, *callbacks):
    return model.fit(x, y, batch_size=4, epochs=4, shuffle=False, verbose=0, callbacks=[*callbacks])
"""

OLD = """
model = cut()
model.save(path("a.keras")); model.save_weights(path("a.weights.h5"))
if rank == 0:
    shutil.copytree(folder, folder + ".old")
tnt.Barrier().execute()
model.set_weights([w + 1 for w in model.get_weights()])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made


def files_in(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def test_a_save_that_fails_leaves_the_old_file(scripts: Any, folder: Path) -> None:
    source = """
Cut.armed = staticmethod(stop)
try:
    model.save_weights(path('a.weights.h5'))
except OSError:
    assert rank == 0
except tnt.Error as error:
    assert rank == 1 and 'rank 0 failed in save_weights of' in str(error), error
else:
    raise AssertionError
model.save(path('a.keras'))
"""
    ended = scripts.ranks(2, HEAD + CUT + OLD + source, str(folder))
    assert ended.code not in (0, None)
    assert "OSError: disk full" in ended.err, ended.err
    assert files_in(folder) == files_in(folder.with_suffix(".old"))


@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("model.save(path('a.keras'))", "a.keras"),
        pytest.param("keras.saving.save_model(model, path('a.keras'))", "a.keras", marks=pytest.mark.full),
        ("fit(model, C.ModelCheckpoint(path('a.weights.h5'), save_weights_only=True))", "a.weights.h5"),
    ],
)
def test_a_save_that_is_killed_leaves_the_old_file(way: str, name: str, scripts: Any, folder: Path) -> None:
    ended = scripts.ranks(2, HEAD + CUT + OLD + f"Cut.armed = staticmethod(die)\n{way}\n", str(folder))
    assert ended.code == 137, ended.err
    assert (folder / f".{name}.partial.0" / name).exists()  # it was being written, where no pattern finds it
    assert files_in(folder) == files_in(folder.with_suffix(".old"))


# After a first save in each way: what keeps the second one from the disk.
NO_ROOM = """
import errno, resource, subprocess
wide = lambda: keras.Sequential([keras.Input((2,)), keras.layers.Dense(9000), keras.layers.Dense(1)])
model = tnt.Model(wide())
model.compile("adam", "mse")
def fit(epochs, callback):
    model.fit(x, y, batch_size=8, epochs=epochs, verbose=0, callbacks=[callback])
C, rounds = keras.callbacks, []
WAYS = {
    "save": lambda: model.save(path("a.keras")),
    "legacy": lambda: model.save(path("a.h5")),
    "large": lambda: model.save(path("large.keras")),
    "weights": lambda: model.save_weights(path("a.weights.h5")),
    "folder": lambda: model.save(path(f"folder{len(rounds)}"), zipped=False),
    "checkpoint": lambda: fit(1, C.ModelCheckpoint(path("c.weights.h5"), save_weights_only=True)),
    "backup": lambda: fit(1 + len(rounds), C.BackupAndRestore(path("backup"), delete_checkpoint=False)),
}
def save(way):
    if way == "large":  # Keras writes its weights to the disk first
        keras.src.saving.saving_lib.is_memory_sufficient = lambda model: False
    WAYS[way]()
def everything():
    return {os.path.relpath(os.path.join(at, name), folder): open(os.path.join(at, name), "rb").read()
            for at, _, names in os.walk(folder) for name in names if name != "filler" and "folder" not in at}
def fill(rest):
    with open(path("filler"), "wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 4096): pass
        except OSError:
            filler.truncate(filler.tell() - rest)
ways = [way for way in WAYS if ONLY in (None, way) and (ONLY or way not in ("checkpoint", "backup"))]
for way in ways:
    save(way)
rounds.append("second")
if rank == 0:
    before = everything()
    np.savez(folder + ".npz", **{name: np.frombuffer(content, "uint8") for name, content in before.items()})
    LIMIT
if ONLY:
    save(ONLY)
for way in ways:
    try:
        save(way)
    except OSError as error:
        assert errno.errorcode[error.errno] in KINDS, error
        assert "partial" not in str(error) and folder in str(error) + str(getattr(error, "__notes__", "")), error
    except tnt.Error as error:
        assert rank and "rank 0 failed in save" in str(error), error
    else:
        raise AssertionError(way)
    if rank == 0:
        after = everything()
        assert after == before, (way, [(name, len(after.get(name, ""))) for name in {**after, **before}
                                       if after.get(name) != before.get(name)])
        left = [name for at, folders, _ in os.walk(folder) for name in folders if "partial" in name]
        assert not left, (way, left)
print("whole", flush=True)
"""
FULL = "('ENOSPC',)"
LIMITS = {
    "full": ("fill(0)", FULL),
    "nearly full": ("fill(65536)", FULL),
    "limited": ("resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))", "('EFBIG',)"),
    "read-only": ("subprocess.run(['mount', '-o', 'remount,ro', folder], check=True)", "('EROFS',)"),
}


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """Of 16 MB, which the test may fill."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk (are you root?): {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def no_room(limit: str, only: str | None = None) -> str:
    code, kinds = LIMITS[limit]
    return HEAD + NO_ROOM.replace("LIMIT", code).replace("KINDS", kinds).replace("ONLY", repr(only))


@pytest.mark.parametrize("limit", LIMITS)
def test_a_save_for_which_there_is_no_room_is_an_error_and_leaves_the_old_file(
    limit: str, scripts: Any, small_disk: Path
) -> None:
    ended = scripts.ranks(2, no_room(limit), str(small_disk))
    assert ended.code == 0, ended.err
    assert "whole" in ended.out


@pytest.mark.parametrize(
    ("callback", "limit", "said"),
    [
        ("checkpoint", "nearly full", "No space left on device"),
        ("backup", "full", "No space left on device"),
        pytest.param("backup", "limited", "File too large", marks=pytest.mark.full),
    ],
)
def test_a_callback_for_which_there_is_no_room_ends_all_ranks(
    callback: str, limit: str, said: str, scripts: Any, small_disk: Path
) -> None:
    ended = scripts.ranks(2, no_room(limit, callback), str(small_disk))
    assert ended.code == 1, ended.err
    assert f"{said}: '{small_disk}/" in ended.err, ended.err
    assert "partial" not in ended.err
    assert "rank 0 (pid" in ended.lines[-1], ended.err
    before = {name: bytes(content) for name, content in np.load(f"{small_disk}.npz").items()}
    paths = [each for each in small_disk.rglob("*") if each.name != "filler" and each != small_disk / "backup"]
    assert {str(each.relative_to(small_disk)): each.read_bytes() for each in paths} == before


BACKUP = """
backup = C.BackupAndRestore(path("backup"))
def killed_in_the_backup_of_the_third_epoch():
    fit(cut(), backup, C.LambdaCallback(on_epoch_begin=lambda epoch, logs:
        setattr(Cut, "armed", staticmethod(die) if epoch == 2 else None)))
def goes_on():
    ours, unbroken = cut(), cut()
    assert fit(ours, backup).epoch == [2, 3]
    fit(unbroken)
    assert all((a == b).all() for a, b in zip(ours.get_weights(), unbroken.get_weights()))
    print("as unbroken")
"""


@pytest.mark.full
def test_training_goes_on_from_a_backup_whose_successor_was_cut_off(scripts: Any, folder: Path) -> None:
    ended = scripts.ranks(2, HEAD + CUT + BACKUP + "killed_in_the_backup_of_the_third_epoch()\n", str(folder))
    assert ended.code == 137, ended.err
    ended = scripts.ranks(2, HEAD + CUT + BACKUP + "goes_on()\n", str(folder))
    assert ended.code == 0, ended.err
    assert "as unbroken" in ended.out


MISTAKES = [
    ("model.save(path('a.txt'))", "Invalid filepath extension for saving"),
    ("model.save(path('no/such/a.keras'))", "No such file or directory"),
    ("tnt.models.load_model(path('nothing.keras'))", "File not found"),
    ("tnt.models.load_model(path('text.keras'))", "text.keras"),
    ("model.load_weights(path('other.weights.h5'))", "ValueError"),
    ("model.load_weights(path('text.weights.h5'))", "file signature not found"),
    ("model.set_weights([w[:1] for w in model.get_weights()])", "shape"),
    ("tnt.models.model_from_config({'name': 'x'})", "ValueError: model_from_config needs what get_config"),
    ("sys.modules['yaml'] = None; model.to_yaml()", "ModuleNotFoundError: to_yaml needs PyYAML: pip install pyyaml"),
    ("tnt.models.model_from_yaml('')", "ModuleNotFoundError: model_from_yaml needs PyYAML: pip install pyyaml"),
]


def test_saves_and_loads_that_fail_raise_on_all_ranks(scripts: Any, tmp_path: Any) -> None:
    source = HEAD + "MISTAKES = " + repr(MISTAKES)
    source += """
other = tnt.Sequential([keras.Input((2,)), keras.layers.Dense(7), keras.layers.Dense(1)])
other.save_weights(path("other.weights.h5"))
for name in ("text.keras", "text.weights.h5"):
    open(path(name), "w").write("text")
for code, wanted in MISTAKES:
    try:
        exec(compile(code, "user.py", "exec"))
    except tnt.Error as error:  # the other ranks' word for what happened to the master
        assert rank == 1 and "rank 0 failed in save of" in str(error), (code, error)
    except Exception as error:
        assert wanted in f"{type(error).__name__}: {error}", (code, error)
    else:
        raise AssertionError(code)
left = sorted(os.listdir(folder))
assert left == ["other.weights.h5", "script.py", "text.keras", "text.weights.h5"], left
print("all seen")
"""
    ended = scripts.ranks(2, source, str(tmp_path))
    assert ended.code == 0, ended.err
    assert "all seen" in ended.out


def test_a_save_that_the_master_never_makes_ends_all_ranks(scripts: Any, tmp_path: Any) -> None:
    source = HEAD + "if rank == 1: model.save(path('a.keras'))\nmodel.fit(x, y, batch_size=4, verbose=0)\n"
    ended = scripts.ranks(2, source, str(tmp_path))
    assert ended.code == 1
    assert "a.keras': rank 0 has continued without it; call it on every rank, or on rank 0 alone" in ended.err, (
        ended.err
    )


# What a callback saves and loads after each epoch.
LOADS_IN_A_CALLBACK = """
import tempfile
second, differ = net(), []
def loaded(name):
    second.load_weights(path(name))
    differ.append(max(abs(a - b).max() for a, b in zip(second.get_weights(), model.get_weights())))
class Saves(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        {epoch}
    def on_train_end(self, logs=None):
        {end}
if {stale} and rank == 0:
    second.save_weights(path("a.weights.h5"))
tnt.Barrier().execute()
model.fit(x, y, batch_size=4, epochs=3, verbose=0, callbacks=[{before}Saves()])
print("differ", [float(each) for each in differ], flush=True)
"""
WAITS = "np.linalg.svd(np.ones((900, 900)))"
LATE = f"rank or {WAITS}; "
SAVED = 'self.model.save_weights(path("a.weights.h5"))'
# After each epoch, at the end, whether there is an older file, and how often the other model's weights are compared.
LOADED = {
    "at once": (f"{LATE}{SAVED}; loaded('a.weights.h5')", "pass", False, 3),
    "over an older file": (f"{LATE}{SAVED}; loaded('a.weights.h5')", "pass", True, 3),
    "twice": (f"{LATE}{SAVED}; {SAVED}; loaded('a.weights.h5'); loaded('a.weights.h5')", "pass", True, 6),
    "at the end": (f"{LATE}{SAVED}", "loaded('a.weights.h5')", False, 1),
    "beside a save of the master's": (
        f"rank or self.model.save(path('own.keras')); {LATE}{SAVED}; loaded('a.weights.h5')",
        "pass",
        True,
        3,
    ),
    "as a whole model": (
        f"{LATE}self.model.save(path(f'{{epoch}}.keras')); "
        "second.set_weights(keras.models.load_model(path(f'{epoch}.keras')).get_weights()); "
        "differ.append(abs(second.get_weights()[0] - self.model.get_weights()[0]).max())",
        "pass",
        False,
        3,
    ),
}


@pytest.mark.parametrize("when", LOADED)
def test_what_a_callback_has_saved_can_be_loaded_in_it(when: str, scripts: Any, folder: Path) -> None:
    epoch, end, stale, times = LOADED[when]
    source = HEAD + LOADS_IN_A_CALLBACK.format(epoch=epoch, end=end, stale=stale, before="")
    ended = scripts.ranks(2, source, str(folder), options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert ended.out.count(f"differ {[0.0] * times}") == 2, ended.out


SLOW_CHECKPOINT = f"""keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: rank or {WAITS}),
    keras.callbacks.ModelCheckpoint(path("{{epoch}}.keras"))"""
# What a callback does with its files after each epoch, and what is there after three of them.
MOVES = {
    "copies what a ModelCheckpoint has saved": (
        "shutil.copy(path(f'{epoch + 1}.keras'), path('latest.keras')); "
        "second.set_weights(keras.models.load_model(path('latest.keras')).get_weights()); "
        "differ.append(abs(second.get_weights()[0] - self.model.get_weights()[0]).max())",
        ["1.keras", "2.keras", "3.keras", "latest.keras"],
    ),
    "goes on after an error that it catches": (
        f"""
        try: os.replace(path('a.weights.h5'), path('b.weights.h5'))
        except FileNotFoundError: assert epoch == 0
        {LATE}{SAVED}; loaded('a.weights.h5')
        if epoch: second.load_weights(path('b.weights.h5'))""",
        ["a.weights.h5", "b.weights.h5"],
    ),
    "clears away an earlier run's": (
        "if epoch == 0: found = list(map(str, pathlib.Path(folder).glob('old*.keras'))); "
        "tnt.Barrier().execute(); rank and tnt.Barrier().execute(); "
        "[(os.remove, os.unlink)[i % 2](each) for i, each in enumerate(found)]; "
        "rank or tnt.Barrier().execute()\n        "
        f"{LATE}{SAVED}; loaded('a.weights.h5')",
        ["a.weights.h5"],
    ),
    "links and moves folders": (
        f"os.makedirs(path('run'), exist_ok=True); {LATE}self.model.save(path('run/m.keras')); "
        "shutil.rmtree(path('best'), ignore_errors=True); shutil.move(path('run'), path('best')); "
        "keras.models.load_model(path('best/m.keras')); epoch and os.remove(path('link')); "
        "os.symlink(path('best/m.keras'), path('link'))",
        ["best", "link"],
    ),
    "removes the one before": (
        f"{LATE}self.model.save(path(f'{{epoch}}.keras')); epoch and os.remove(path(f'{{epoch - 1}}.keras'))",
        ["2.keras"],
    ),
    "keeps the last two it finds": (
        f"{LATE}self.model.save(path(f'{{epoch}}.keras')); "
        "[each.unlink() for each in sorted(pathlib.Path(folder).glob('*.keras'))[:-2]]",
        ["1.keras", "2.keras"],
    ),
    "copies, renames and loads": (
        f"{LATE}{SAVED}; shutil.copy(path('a.weights.h5'), path('b.weights.h5')); "
        "os.replace(path('b.weights.h5'), path('c.weights.h5')); loaded('c.weights.h5')",
        ["a.weights.h5", "c.weights.h5"],
    ),
    "begins with an empty folder": (
        "shutil.rmtree(path('kept'), ignore_errors=False) if epoch else None; rank or os.makedirs(path('kept')); "
        f"{LATE}self.model.save(path('kept/a.keras'))",
        ["kept"],
    ),
    "moves into a folder": (
        f"os.makedirs(path('best'), exist_ok=True); {LATE}{SAVED}; "
        "moved = shutil.copy2(path('a.weights.h5'), path('best')); loaded('best/a.weights.h5'); "
        "assert moved == path('best/a.weights.h5'), moved",
        ["a.weights.h5", "best"],
    ),
    "on every rank its own": (
        f"{SAVED}; own = path(f'rank{{rank}}.weights.h5'); open(own, 'w').close(); shutil.copy(own, own + '.copy'); "
        "os.remove(os.fsencode(own))",
        ["a.weights.h5", "rank0.weights.h5.copy", "rank1.weights.h5.copy"],
    ),
}


@pytest.mark.parametrize("what", MOVES)
def test_files_of_a_callback_are_moved_and_removed_once(what: str, scripts: Any, folder: Path) -> None:
    epoch, left = MOVES[what]
    before = f"{SLOW_CHECKPOINT}, " if "ModelCheckpoint" in what else ""
    options = {"epoch": epoch, "end": "pass", "stale": False, "before": before}
    source = HEAD + "import pathlib, shutil\n" + LOADS_IN_A_CALLBACK.format(**options)
    for old in ("old1.keras", "old2.keras") if "earlier" in what else ():
        (folder / old).touch()
        os.utime(folder / old, (0, 0))
    ended = scripts.ranks(2, source, str(folder), options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert sorted(each.name for each in folder.iterdir() if each.name != "script.py") == left
    assert not any(map(float, re.findall(r"\d\.[\de-]+", ended.out))), ended.out


OWN_PATH = "own = os.path.join(tempfile.mkdtemp(), 'own.keras'); self.model.save(own)"
ENDS = {
    f"{OWN_PATH}; keras.models.load_model(own)": "own.keras' does not exist: when all ranks save, only rank 0 writes",
    f"{SAVED}; rank and ({WAITS}, loaded('a.weights.h5')); os.remove(path('a.weights.h5'))": (
        "has removed it before rank 1 has loaded it"
    ),
    "rank and (self.model.save(path('b.keras')), keras.models.load_model(path('b.keras')))": (
        "tarantella.Error: rank 0 has not saved "
    ),
}


@pytest.mark.parametrize("epoch", ENDS)
def test_a_path_that_the_master_has_not_saved_is_named(epoch: str, scripts: Any, folder: Path) -> None:
    source = HEAD + LOADS_IN_A_CALLBACK.format(epoch=epoch, end="pass", stale=False, before="")
    ended = scripts.ranks(2, source, str(folder), TNT_TIMEOUT="3")
    assert ended.code == 1
    assert ENDS[epoch] in ended.err, ended.err


def test_paths_that_differ_are_named_after_training(scripts: Any, folder: Path) -> None:
    source = HEAD + LOADS_IN_A_CALLBACK.format(epoch=OWN_PATH, end="pass", stale=False, before="")
    ended = scripts.ranks(2, source, str(folder))
    assert ended.code == 0, ended.err
    (said,) = [line for line in ended.lines if "WARNING: rank 1 saves to '" in line]
    assert "own.keras', but rank 0, which alone writes, to '" in said


def test_a_model_that_is_saved_to_a_folder_of_each_process_is_explained(scripts: Any, folder: Path) -> None:
    source = (
        HEAD
        + """
import tempfile
own = os.path.join(tempfile.mkdtemp(), "own.keras")
model.save(own)
keras.models.load_model(own)
tnt.Barrier().execute()
"""
    )
    ended = scripts.ranks(2, source, str(folder))
    assert ended.code == 1
    assert "own.keras' does not exist: when all ranks save, only rank 0 writes" in ended.err, ended.err


CHECKPOINTS = """
import tensorflow as tf
class Saves(keras.callbacks.Callback):
    def set_model(self, model):
        super().set_model(model)
        self.checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        self.latest = tf.train.CheckpointManager(self.checkpoint, path("latest"), 3)
        self.steps = tf.Variable(0)
        options = {"step_counter": self.steps, "checkpoint_interval": 4}
        self.sometimes = tf.train.CheckpointManager(self.checkpoint, path("sometimes"), 2, **options)
        self.own = tf.train.CheckpointManager(self.checkpoint, path(f"own{rank}"), 1)
        self.seen = []
    def on_train_batch_end(self, batch, logs=None):
        self.steps.assign_add(1)
        rank or np.linalg.svd(np.ones((200, 200)))
        saved = self.latest.save()
        before = [each.copy() for each in self.model.get_weights()]
        self.checkpoint.restore(saved).expect_partial()
        assert all((a == b).all() for a, b in zip(before, self.model.get_weights()))
        assert tf.train.latest_checkpoint(path("latest")) == saved == self.latest.latest_checkpoint
        others = self.sometimes.save(), self.sometimes.checkpoints, self.checkpoint.save(path("numbered/x"))
        self.seen.append((saved, self.latest.checkpoints, *others, int(self.checkpoint.save_counter)))
        assert len(self.own.checkpoints) == (batch > 0) and self.own.save()
saves = Saves()
model.fit(x, y, batch_size=4, epochs=1, verbose=0, callbacks=[saves])
if rank: saves.checkpoint.write(path("alone"))
saves.latest.save()
if not rank: saves.latest.save()
tnt.Barrier().execute()
print(saves.seen, sorted(os.listdir(folder)), len(saves.latest.checkpoints), flush=True)
"""


def test_checkpoints_of_tensorflow_are_written_once(scripts: Any, folder: Path) -> None:
    ended = scripts.ranks(2, HEAD + CHECKPOINTS, str(folder), options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    first, second = (line.partition(" ")[2] for line in ended.out.splitlines())
    assert first == second
    assert "['alone.data-00000-of-00001', 'alone.index', 'latest', 'numbered', 'own0', 'own1', 'sometimes'] 3" in first


# With a tuner of KerasTuner: its folder, and its other options.
TUNER = """
import tempfile
sys.path.insert(0, {packages!r})
import keras_tuner
def build(hyperparameters):
    units = hyperparameters.Int("units", 2, 9)
    model = tnt.Model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(units), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.Adam(hyperparameters.Choice("rate", [1e-2, 1e-3])), "mse")
    return model
tuner = keras_tuner.RandomSearch(
    build, "val_loss", max_trials=2, directory={directory}, project_name="search", {options}
)
tuner.search(x, y, epochs=1, validation_data=(x, y), verbose=0)
best = tuner.get_best_models(1)[0]
print("found", tuner.get_best_hyperparameters()[0].values, best.evaluate(x, y, verbose=0), flush=True)
"""
PACKAGES = Path(__file__).parents[3] / "build" / "keras-hub"  # see tools/keras_hub.txt
KERAS_TUNER = pytest.mark.skipif(not (PACKAGES / "keras_tuner").is_dir(), reason="KerasTuner is not in build/keras-hub")


@KERAS_TUNER
@pytest.mark.parametrize("options", ["", "seed=1, overwrite=True"])
def test_a_tuner_searches_once_for_all_ranks(options: str, scripts: Any, folder: Path) -> None:
    """The second run has the folder of the first one: it is read by all ranks, or emptied by one."""
    source = HEAD + TUNER.format(packages=str(PACKAGES), directory="folder", options=options)
    for _ in range(2):
        ended = scripts.ranks(2, source, str(folder), options=("--output-on-all-devices",))
        assert ended.code == 0, ended.err
        found = re.findall(r"found (.*)", ended.out)
        assert len(found) == 2 and found[0] == found[1], ended.out
    assert len(list((folder / "search").glob("trial_*"))) == 2


@KERAS_TUNER
def test_tuners_with_a_folder_of_each_process_are_named(scripts: Any, folder: Path) -> None:
    source = HEAD + TUNER.format(packages=str(PACKAGES), directory="tempfile.mkdtemp()", options="seed=1")
    ended = scripts.ranks(2, source, str(folder))
    assert ended.code == 1
    assert "MismatchError: the tuner of rank 1 uses the folder '" in ended.err, ended.err
    assert "pass the same directory and project_name on all ranks" in ended.err
