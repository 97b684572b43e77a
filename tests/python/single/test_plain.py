"""One process without a launcher: names, delegation, and nothing loaded that is not needed."""

from __future__ import annotations

import copy
import subprocess
import sys
import types
from typing import Any

import pytest

import tarantella as tnt


@pytest.fixture(scope="module")
def keras() -> Any:
    return pytest.importorskip("keras")


@pytest.fixture
def model(keras: Any) -> Any:
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="dense")])
    inner.compile(optimizer="sgd", loss="mse")
    return tnt.Model(inner)


def test_import_loads_neither_frameworks_nor_core() -> None:
    code = (
        "import sys, tarantella as tnt; tnt.init(); tnt.init(); tnt.barrier(); tnt.Error; dir(tnt)\n"
        "loaded = {'tensorflow', 'keras', 'numpy', 'tarantella._core'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_public_names_exist_and_one_process_is_the_master() -> None:
    assert all(hasattr(tnt, name) for name in tnt.__all__)
    assert (tnt.get_rank(), tnt.get_size(), tnt.get_local_rank(), tnt.get_master_rank()) == (0, 1, 0, 0)
    assert tnt.is_master_rank()
    assert issubclass(tnt.PeerLostError, tnt.Error)
    assert issubclass(tnt.MismatchError, tnt.Error)
    with pytest.raises(AttributeError):
        _ = tnt.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"TNT_SIZE": "x"}, "TNT_SIZE must be a whole number"),
        ({"TNT_SIZE": "0"}, "TNT_SIZE must be at least 1"),
        ({"TNT_SIZE": "2", "TNT_RANK": "2"}, "TNT_RANK must be below TNT_SIZE"),
    ],
)
def test_an_invalid_environment_raises_value_error(
    values: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tarantella._job import environment

    for name, value in values.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        environment.layout.__wrapped__()


def test_the_wrapper_is_a_keras_model(keras: Any, model: Any) -> None:
    assert isinstance(model, keras.Sequential)
    entry = keras.Input((4,))
    model = tnt.Model(keras.Model(entry, keras.layers.Dense(2, name="dense")(entry)))
    assert isinstance(model, keras.Model)
    assert not isinstance(model, keras.Sequential)
    assert isinstance(model, tnt.Model)
    assert not isinstance(model, str)
    features = keras.Model(model.input, model.get_layer("dense").output)
    assert features.count_params() == model.count_params() == 10
    assert keras.models.clone_model(model).count_params() == 10
    nested = keras.Sequential([keras.Input((4,)), model, keras.layers.Dense(1)])
    assert nested.count_params() == 13


def test_the_wrapper_delegates_to_the_keras_model(keras: Any, model: Any, tmp_path: Any) -> None:
    import numpy as np

    inner = model.keras_model
    x = np.ones((3, 4), "float32")
    assert model(x).shape == (3, 2)
    assert model.layers is not None
    assert model.parallel_strategy is tnt.ParallelStrategy.DATA
    model.trainable = False
    assert inner.trainable is False
    model.own = 3
    assert inner.own == 3
    del model.own
    with pytest.raises(AttributeError):
        _ = model.own
    model.set_weights([np.ones((4, 2)), np.zeros(2)])
    assert (inner.get_weights()[0] == 1).all()
    model.save(tmp_path / "m.keras")
    keras.models.save_model(model, tmp_path / "n.keras")
    assert keras.models.load_model(tmp_path / "n.keras").count_params() == 10
    assert "get_layer" in dir(model)
    assert "tarantella.Model" in repr(model)


def test_a_model_is_wrapped_once(model: Any) -> None:
    assert tnt.Model(model).keras_model is model.keras_model


def test_copies_are_models_of_their_own(model: Any) -> None:
    import numpy as np

    other = copy.deepcopy(model)
    assert type(other) is tnt.Model
    assert other.keras_model is not model.keras_model
    other.set_weights([np.zeros((4, 2)), np.zeros(2)])
    assert model.get_weights()[0].any()
    assert copy.copy(model).keras_model is model.keras_model


def test_one_rank_trains_as_plain_keras(keras: Any, model: Any) -> None:
    import numpy as np

    x, y = np.ones((5, 4)), np.ones((5, 2))
    history = model.fit(x, y, verbose=0, tnt_distribute_dataset=False)
    assert len(history.history["loss"]) == 1
    assert "train_step" not in vars(model.keras_model)
    assert "apply" not in vars(model.keras_model.optimizer)
    assert model.predict(x, verbose=0).shape == (5, 2)
    assert model.train_on_batch(x, y) >= 0


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batch_size": "8"}, TypeError, "batch_size must be a whole number"),
        ({"validation_batch_size": -1}, ValueError, "validation_batch_size must be at least 1"),
        ({"tnt_nothing": 1}, TypeError, "unexpected keyword argument 'tnt_nothing'"),
        ({"tnt_distribute_dataset": 1}, TypeError, "must be True or False"),
        ({"tnt_micro_batch_size": 0}, ValueError, "tnt_micro_batch_size must be at least 1"),
        ({"tnt_micro_batch_size": 4}, ValueError, "a micro batch size needs arrays or a tf.data.Dataset"),
    ],
)
def test_invalid_arguments_of_fit_raise(
    options: dict[str, Any], kind: type[Exception], message: str, model: Any
) -> None:
    with pytest.raises(kind, match=message):
        model.fit([[1.0]], **options)


def test_validation_data_without_labels_are_those_of_keras(keras: Any) -> None:
    import numpy as np

    class Own(keras.Model):
        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
            return keras.ops.mean(y_pred) + (0.0 if y is None else 100.0)

    a, b = keras.Input((1,)), keras.Input((1,))
    inner = Own([a, b], keras.layers.Dense(1, kernel_initializer="ones")(keras.layers.Concatenate()([a, b])))
    inner.compile(keras.optimizers.SGD(0.0))
    rows = [np.full((4, 1), 1.0), np.full((4, 1), 2.0)]
    for data in ((rows,), (tuple(rows),), (rows, None), (rows, None, np.ones(4))):
        plain, wrapped = (
            each.fit(rows, batch_size=4, verbose=0, validation_data=data).history for each in (inner, tnt.Model(inner))
        )
        assert plain == wrapped == {"loss": [3.0], "val_loss": [3.0]}


def test_either_spelling_of_an_argument_counts_and_both_must_agree(model: Any, tmp_path: Any) -> None:
    file, refused = tmp_path / "m.keras", "contradicts tnt_{}_all_devices=True, its older name; pass only one"
    for values in ({}, {"ranks": True}, {"devices": True}, {"ranks": False, "devices": False}):
        model.save(file, **{f"tnt_save_all_{name}": value for name, value in values.items()})
    for name in ("save", "save_weights", "export"):
        with pytest.raises(ValueError, match="tnt_save_all_ranks=False " + refused.format("save")):
            getattr(model, name)(file, tnt_save_all_ranks=False, tnt_save_all_devices=True)
    with pytest.raises(ValueError, match="tnt_save_all_ranks=False " + refused.format("save")):
        tnt.models.save_model(model, file, tnt_save_all_ranks=False, tnt_save_all_devices=True)
    with pytest.raises(ValueError, match="tnt_predict_all_ranks=False " + refused.format("predict")):
        model.predict([[1.0]], tnt_predict_all_ranks=False, tnt_predict_all_devices=True)


def test_unsupported_strategies_are_refused(keras: Any, model: Any) -> None:
    for strategy in (tnt.ParallelStrategy.PIPELINING, tnt.ParallelStrategy.ALL):
        with pytest.raises(NotImplementedError, match="pipelining"):
            tnt.Model(model, parallel_strategy=strategy)
    with pytest.raises(TypeError, match="ParallelStrategy"):
        tnt.Model(model, parallel_strategy="data")  # type: ignore[arg-type]


def test_other_objects_than_keras_models_are_refused() -> None:
    with pytest.raises(TypeError, match=r"keras\.Model \(got int\)"):
        tnt.Model(3)
    legacy = types.new_class("Model")
    legacy.__module__ = "tf_keras.src.engine.training"
    with pytest.raises(TypeError, match="TF_USE_LEGACY_KERAS"):
        tnt.Model(legacy())
