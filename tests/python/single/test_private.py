"""A Keras without a private name is refused; one that is newer than all that were tested is named."""

from __future__ import annotations

import inspect
import random
import sys
from typing import Any

import pytest

keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("needs the tensorflow backend", allow_module_level=True)

import numpy as np  # noqa: E402

from tarantella._job import log  # noqa: E402
from tarantella.keras import hooks, private  # noqa: E402

OWNERS: dict[str, Any] = {
    "Model": keras.Model,
    "Layer": keras.layers.Layer,
    "BatchNormalization": keras.layers.BatchNormalization,
    "CompileLoss": sys.modules["keras.src.trainers.compile_utils"].CompileLoss,
    "MeanMetricWrapper": keras.metrics.MeanMetricWrapper,
    "Optimizer": keras.optimizers.SGD,
    "ModelCheckpoint": keras.callbacks.ModelCheckpoint,
    "ArrayDataAdapter": private.ArrayDataAdapter,
}


class Renamed:
    """In the place of an attribute: Keras finds it, as under a new name, and nobody else does."""

    def __init__(self, name: str, before: Any) -> None:
        self.name, self.before = name, before

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if not sys._getframe(1).f_globals["__name__"].startswith("keras.src"):
            raise AttributeError(self.name)
        if owner is not None and self.name in vars(owner):
            return vars(owner)[self.name]
        if self.before is None:
            raise AttributeError(self.name)
        return self.before.__get__(owner, kind) if hasattr(self.before, "__get__") else self.before

    def __set__(self, owner: Any, value: Any) -> None:
        vars(owner)[self.name] = value


def refused(match: str) -> Any:
    sentence = rf"^Keras \S+ is not supported on several ranks .*(?:{match}).*a tested version: {private.KNOWN}$"
    return pytest.raises(NotImplementedError, match=sentence)


@pytest.fixture(autouse=True)
def unknown() -> Any:
    hooks.check_keras.cache_clear()
    yield
    hooks.check_keras.cache_clear()


def test_nothing_of_it_shows_in_the_users_names_and_random_numbers() -> None:
    keras.backend.clear_session()
    states = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]
    hooks.check_keras()
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == states  # type: ignore[index]
    assert keras.layers.Dense(1).name == "dense"
    assert keras.Sequential().name == "sequential"
    assert keras.optimizers.SGD().name == "sgd"
    assert keras.metrics.Mean().name == "mean"


@pytest.mark.parametrize(("version", "is_named"), [("3.5.0", 0), ("3.16.1", 0), ("3.17.0.dev2026", 1), ("4.0.0", 1)])
def test_a_newer_keras_is_named_once(version: str, is_named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "warn_once", said.append)
    monkeypatch.setattr(keras, "__version__", version)
    hooks.check_keras()
    hooks.check_keras()
    assert len(said) == is_named
    assert all(f"Keras {version} is newer" in each and "tarantella verify" in each for each in said)


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner in OWNERS for name in private.NAMES[owner]])
def test_each_name_taken_away(owner: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = OWNERS[owner]
    for each in name.split(" or "):
        before = inspect.getattr_static(kind, each, None)
        monkeypatch.setattr(kind, each, Renamed(each, before), raising=False)
    with refused(name):
        hooks.check_keras()


MODULES = [(owner, name) for owner, names in private.NAMES.items() if owner.islower() for name in names]


@pytest.mark.parametrize(("owner", "name"), MODULES)
def test_each_function_taken_away(owner: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(getattr(private, owner), name)
    with refused(name):
        hooks.check_keras()


def test_only_what_is_listed_is_patched() -> None:
    with pytest.raises(KeyError, match="not in the list"):
        hooks.hook(keras.layers.Dense(1), "count_params", lambda original: original)
