"""With one rank: models are made, saved and loaded, and wrapped callbacks run, as in plain Keras."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tarantella as tnt
from tarantella.keras import files

keras = pytest.importorskip("keras")
np = pytest.importorskip("numpy")


def layers() -> list[Any]:
    return [keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)]


@pytest.fixture
def model() -> Any:
    made = tnt.Sequential(layers())
    made.compile("sgd", "mse")
    return made


def test_older_names_get_a_suffix_that_loading_knows(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    model.save(tmp_path / "other", overwrite=True)
    model.save_weights(str(tmp_path / "weights"), overwrite=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.keras", "other.keras", "weights.weights.h5"]
    loaded = tnt.models.load_model(tmp_path / "model")
    assert type(loaded) is tnt.Model
    loaded.set_weights([w + 1 for w in loaded.get_weights()])
    loaded.load_weights(tmp_path / "weights")
    assert all((a == b).all() for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True))


def test_a_folder_of_that_name_hides_the_file_only_if_keras_loads_it(model: Any, tmp_path: Path) -> None:
    (tmp_path / "no/such/model/variables").mkdir(parents=True)  # SavedModel's
    model.save(tmp_path / "no/such/model")
    assert type(tnt.models.load_model(tmp_path / "no/such/model")) is tnt.Model
    model.save(tmp_path / "folder")
    model.set_weights([w + 1 for w in model.get_weights()])
    model.save(tmp_path / "folder", zipped=False)
    loaded = tnt.models.load_model(tmp_path / "folder")
    assert all((a == b).all() for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True))


def test_folders_are_made_for_older_names_only(model: Any, tmp_path: Path) -> None:
    model.save_weights(tmp_path / "path/to/weights")
    assert (tmp_path / "path/to/weights.weights.h5").exists()
    with pytest.raises(FileNotFoundError):
        model.save(tmp_path / "a/typo/model.keras")
    assert not (tmp_path / "a").exists()


def test_what_keras_does_not_write_as_one_file_is_left_to_keras(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "folder", zipped=False)
    assert (tmp_path / "folder" / "config.json").exists()
    with pytest.raises(ValueError, match=r"save_format.*deprecated"):
        model.save(tmp_path / "older", save_format="h5")
    model.save_weights(tmp_path / "shards.weights.json", max_shard_size=1)
    assert (tmp_path / "shards.weights.json").exists()


def test_a_link_still_points_to_the_file(model: Any, tmp_path: Path) -> None:
    (tmp_path / "target.keras").write_text("old")
    (tmp_path / "link.keras").symlink_to(tmp_path / "target.keras")
    model.save(tmp_path / "link.keras")
    assert (tmp_path / "link.keras").is_symlink()
    assert keras.models.load_model(tmp_path / "target.keras").built


@pytest.mark.parametrize("serialized", [True, False])
@pytest.mark.parametrize("functional", [True, False])
def test_models_from_configs(functional: bool, serialized: bool) -> None:
    inputs = keras.Input((2,))
    inner = keras.Model(inputs, keras.layers.Dense(1)(inputs)) if functional else keras.Sequential(layers())
    config = keras.saving.serialize_keras_object(inner) if serialized else tnt.Model(inner).get_config()
    rebuilt = tnt.models.model_from_config(config)
    assert type(rebuilt) is tnt.Model
    assert rebuilt.get_config() == inner.get_config()


def test_yaml_and_back(model: Any) -> None:
    pytest.importorskip("yaml")
    odd = [keras.layers.Dense(2, name="yes"), keras.layers.LayerNormalization(epsilon=1e-7, name="1e-3"), Doubled()]
    described = tnt.Sequential([*layers(), *odd]).to_yaml()
    assert described.splitlines()[:2] == ["module: keras", "class_name: Sequential"]
    rebuilt = tnt.models.model_from_yaml(described, custom_objects={"Doubled": Doubled})
    assert type(rebuilt) is tnt.Model
    assert rebuilt.to_yaml() == described
    assert [layer.name for layer in rebuilt.layers[2:4]] == ["yes", "1e-3"]
    shared = tnt.models.model_from_yaml(model.to_yaml(sort_keys=True), parallel_strategy=tnt.ParallelStrategy.DATA)
    assert shared.to_json() == model.to_json()


class Doubled(keras.layers.Layer):  # type: ignore[misc, name-defined]
    def call(self, x: Any) -> Any:
        return 2 * x


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "does not describe a model"),
        ("- module: keras", "does not describe a model"),
        ("class_name: [", "line 1"),
        ("!!python/object/apply:os.system ['touch ran']", "python/object/apply:os.system.*line 1"),
        ("class_name: Sequential\nconfig: {layers: !!python/tuple [1]}", "python/tuple.*line 2"),
    ],
)
def test_yaml_that_is_no_model_runs_no_code(
    text: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"(?s){wanted}"):
        tnt.models.model_from_yaml(text)
    assert not any(tmp_path.iterdir())


def test_yaml_without_pyyaml_names_it(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    for call in (model.to_yaml, lambda: tnt.models.model_from_yaml("")):
        with pytest.raises(ImportError, match=r"needs PyYAML: pip install pyyaml .*json"):
            call()


def test_a_file_is_on_the_disk_before_it_replaces_another(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a machine that loses its power may keep the new name and none of the bytes."""
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def syncs(descriptor: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def replaces(source: Any, target: Any) -> None:
        calls.append(("replace", str(source)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(os, "replace", replaces)
    keras_model = model.keras_model
    for save, name in ((model.save, "a.keras"), (model.save_weights, "b.weights.h5"), (keras_model.save, "c.h5")):
        with files.by_master(keras_model):
            save(tmp_path / name)
        partial = str(tmp_path / f".{name}.partial.0" / name)
        assert calls == [("fsync", partial), ("replace", partial), ("fsync", str(tmp_path))], name
        calls.clear()


def test_a_folder_that_cannot_be_synced_does_not_fail_a_save(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems refuse it. A file that cannot be written down is an error, and the old one stays."""
    number, fsync = errno.EINVAL, os.fsync

    def fails(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}") == (number == errno.EINVAL):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    model.save_weights(tmp_path / "a.weights.h5")
    before = (tmp_path / "a.weights.h5").read_bytes()
    number = errno.ENOSPC
    model.set_weights([w + 1 for w in model.get_weights()])
    with pytest.raises(OSError, match="No space left"):
        model.save_weights(tmp_path / "a.weights.h5", overwrite=True)
    assert [each.name for each in tmp_path.iterdir()] == ["a.weights.h5"]
    assert (tmp_path / "a.weights.h5").read_bytes() == before


def test_keras_functions_take_our_models(model: Any, tmp_path: Path) -> None:
    assert isinstance(model, keras.Sequential)
    keras.models.save_model(model, tmp_path / "a.keras")
    assert keras.models.load_model(tmp_path / "a.keras").count_params() == model.count_params()
    assert keras.models.clone_model(model).count_params() == model.count_params()


def test_a_wrapped_callback_sees_all(model: Any) -> None:
    class Own(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[str] = []

        def on_train_begin(self, logs: Any = None) -> None:
            self.calls.append(f"begin {self.params['epochs']} {self.model.name}")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.calls.append(f"batch {batch} {sorted(logs)}")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.calls.append(f"epoch {epoch}")
            self.model.stop_training = True

    own = Own()
    model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, verbose=0, callbacks=tnt.keras.callbacks.Callback(own))
    assert own.calls == [f"begin 3 {model.name}", "batch 0 ['loss']", "epoch 0"]


def test_callbacks_that_cannot_be_wrapped(tmp_path: Path) -> None:
    wrap = tnt.keras.callbacks.Callback
    with pytest.raises(TypeError, match=r"needs a keras.callbacks.Callback \(got str\)"):
        wrap("early")
    with pytest.raises(ValueError, match="already wrapped"):
        wrap(wrap(keras.callbacks.History()))
    with pytest.raises(ValueError, match="BackupAndRestore cannot run on all ranks"):
        wrap(keras.callbacks.BackupAndRestore(tmp_path), run_on_all_ranks=True)


def test_sums_of_one_number_a_batch_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tarantella._job import log
    from tarantella.keras.step import metrics
    from tarantella.keras.step.step import running

    said: list[str] = []
    monkeypatch.setattr(log, "warn_once", said.append)
    rows, mean = keras.metrics.Sum(name="rows"), keras.metrics.Sum(name="mean")
    metrics.install(SimpleNamespace(metrics=[rows, mean]))
    mean.update_state(1.0)
    assert said == []
    with running(SimpleNamespace(static_rows=(2,))):
        rows.update_state([1.0, 2.0])
        mean.update_state(4.0)
    assert [float(rows.result()), float(mean.result())] == [3.0, 5.0]
    assert len(said) == 1
    assert said[0].startswith("mean (Sum) is updated with numbers of the batch")
