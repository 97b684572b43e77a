"""A Keras without a private name, or with another meaning of it, is refused; it never gives other numbers."""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("needs the tensorflow backend", allow_module_level=True)

import numpy as np  # noqa: E402
from keras import ops  # noqa: E402

from tarantella.keras import hooks, private  # noqa: E402
from tarantella.keras.calls import proof  # noqa: E402

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
    sentence = rf"^Keras \S+ .*(?:{match}).*several ranks would train otherwise.*known to work: {private.KNOWN}$"
    return pytest.raises(NotImplementedError, match=sentence)


@pytest.mark.parametrize("floatx", ["float32", "float64", "float16", "bfloat16"])
def test_this_keras_is_as_known(floatx: str) -> None:
    before = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        proof.prove()
    finally:
        keras.config.set_floatx(before)
    assert not any(hooks.hooked(proof.backend, name) for name in ("allreduce", "sum_over_ranks", "differentiable_sum"))


def test_the_known_numbers_are_those_of_plain_keras_and_of_two_ranks() -> None:
    def steps() -> list[Any]:
        model, data = proof.model(), proof.data(slice(4))
        model.train_step(data)
        one = proof.Rank(proof.ROWS, proof.OTHERS)
        found = one.step()
        other = proof.Rank(slice(0, 1), one.brought)
        return [proof.numbers(model, data[0]), found, other.step(), other.brought]

    with proof.backend.quick_kernels():
        plain, one, other, brought = proof.backend.apart(steps)
    equal = functools.partial(np.testing.assert_allclose, rtol=1e-4)
    assert brought.keys() == proof.OTHERS.keys()
    for name, part in proof.OTHERS.items():
        equal(brought[name], part)
    for rank in (one, other):
        equal(rank.weights, plain.weights)
    assert plain.states.keys() == proof.KNOWN.states.keys()
    for name, state in plain.states.items():
        equal(one.states[name], proof.KNOWN.states[name])
        equal(np.add(one.states[name], other.states[name]), state)
    equal(one.losses, proof.KNOWN.losses)
    equal(np.add(one.losses, other.losses), plain.losses)
    equal(one.normalized, proof.KNOWN.normalized)
    equal(np.concatenate([other.normalized, one.normalized]), plain.normalized)


def test_a_tensorflow_without_the_switch_of_quick_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["tensorflow.python.pywrap_tfe"], "TFE_ContextSetRunEagerOpAsFunction")
    proof.prove()


def test_nothing_of_it_shows_in_the_users_names_and_random_numbers() -> None:
    keras.backend.clear_session()
    states = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]
    proof.prove()
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == states  # type: ignore[index]
    assert keras.layers.Dense(1).name == "dense"
    assert keras.Sequential().name == "sequential"


@pytest.mark.parametrize("name", [each for each in private.NAMES if each.owner in OWNERS], ids=lambda each: each.name)
def test_each_name_taken_away(name: private.Name, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = OWNERS[name.owner]
    before = inspect.getattr_static(kind, name.name, None)
    if before is None and name.seen != private.KNOWN:
        compiled = keras.Sequential([keras.layers.Dense(1)])
        compiled.compile("sgd", "mse")
        if not hasattr(private.compiled_losses(compiled), name.name):
            pytest.skip(f"a name of Keras {name.seen}")
    monkeypatch.setattr(kind, name.name, Renamed(name.name, before), raising=False)
    with refused(name.name):
        proof.prove()


@pytest.mark.parametrize("name", private.FUNCTIONS, ids=lambda each: each.name)
def test_each_function_taken_away(name: private.Name, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(getattr(private, name.owner), name.name)
    with refused(name.name):
        proof.prove()


def masks_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = sys.modules["keras.src.backend.common.masking"]
    set_it, get_it = attributes.set_tensor_attr, attributes.get_tensor_attr
    monkeypatch.setattr(attributes, "set_tensor_attr", lambda x, name, value: set_it(x, "_mask_of_keras", value))
    monkeypatch.setattr(attributes, "get_tensor_attr", lambda x, name: get_it(x, "_mask_of_keras"))


def sums_are_means(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = sys.modules["keras.src.losses.loss"]
    monkeypatch.setattr(losses, "reduce_values", lambda values, *args, **kwargs: ops.mean(values))


def means_are_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = sys.modules["keras.src.losses.loss"]
    monkeypatch.setattr(losses, "reduce_values", lambda values, *args, **kwargs: ops.sum(values))


def losses_are_kept_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of losses is read by none."""
    kind = OWNERS["CompileLoss"]
    call = kind.call

    def from_a_copy(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = "_flat_losses" if hasattr(self, "_flat_losses") else "flat_losses"
        if not self.built:
            self.build(*args[:2])
        hooked = getattr(self, name)
        plain = [
            each if not hasattr(each, "loss") or not hasattr(each.loss, "loss") else each._replace(loss=each.loss.loss)
            for each in hooked
        ]
        setattr(self, name, plain)
        try:
            return call(self, *args, **kwargs)
        finally:
            setattr(self, name, hooked)

    monkeypatch.setattr(kind, "call", from_a_copy)


def metrics_hold_means(monkeypatch: pytest.MonkeyPatch) -> None:
    def update_state(self: Any, values: Any, sample_weight: Any = None) -> None:
        self.total.assign(ops.mean(ops.cast(values, self.dtype)))
        self.count.assign(1.0)

    monkeypatch.setattr(keras.metrics.Mean, "update_state", update_state)


def steps_take_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    step = keras.Model.train_step
    monkeypatch.setattr(keras.Model, "train_step", lambda self, state, data: step(self, data))


def steps_update_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply_gradients(self: Any, pairs: Any) -> None:
        for gradient, variable in pairs:
            variable.assign_sub(ops.cast(self.learning_rate, variable.dtype) * gradient)

    monkeypatch.setattr(keras.optimizers.SGD, "apply_gradients", apply_gradients)


def moments_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    moments, call = (getattr(keras.layers.BatchNormalization, name) for name in ("_moments", "call"))

    def swapped(self: Any, *args: Any) -> Any:
        return moments(self, *args)[::-1]

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        ours = self._moments
        vars(self)["_moments"] = lambda *each: ours(*each)[::-1]
        try:
            return call(self, *args, **kwargs)
        finally:
            vars(self)["_moments"] = ours

    called.__wrapped__ = call  # type: ignore[attr-defined]  # whose code uses the name
    monkeypatch.setattr(keras.layers.BatchNormalization, "_moments", swapped)
    monkeypatch.setattr(keras.layers.BatchNormalization, "call", called)


def regularizers_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = keras.layers.Layer
    get, before = kind._get_regularization_losses, inspect.getattr_static(kind, "losses").fget

    def losses(self: Any) -> Any:
        return [*get(self)]

    losses.__wrapped__ = before  # type: ignore[attr-defined]
    monkeypatch.setattr(kind, "losses", property(losses))


def results_from_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(self: Any, *args: Any, **kwargs: Any) -> None: ...

    fit.__module__ = keras.Model.fit.__module__  # as another Keras has it
    monkeypatch.setattr(keras.Model, "fit", fit)


def results_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    get = getattr(keras.Model, private.RESULTS)
    monkeypatch.setattr(keras.Model, private.RESULTS, lambda self, logs: dict(get(self, logs)))


def checkpoints_save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.callbacks.ModelCheckpoint, "_should_save_on_batch", lambda self, batch: True)


def rows_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "rows_of", lambda adapter: adapter.batch_size)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (masks_elsewhere, "mask"),
        (sums_are_means, "weights after a step"),
        (means_are_sums, "weights after a step"),
        (losses_are_kept_elsewhere, "weights after a step"),
        (metrics_hold_means, "states of losses and metrics"),
        (steps_take_a_state, "fails in a step"),
        (steps_update_by_themselves, "optimizer's variables"),
        (moments_swapped, "BatchNormalization"),
        (regularizers_elsewhere, "losses of regularizers"),
        (results_from_fit, f"{private.RESULTS}|_initial_epoch"),
        (results_copied, "results of a step"),
        (checkpoints_save_always, "checkpoint"),
        (rows_of_a_batch, "arrays"),
    ],
)
def test_another_meaning(change: Callable[[Any], None], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch)
    with refused(said):
        proof.prove()


@pytest.mark.parametrize("owner", [keras.Model, vars(sys.modules["keras.src.models.model"])["Trainer"]])
def test_what_a_tool_wraps_is_no_other_keras(owner: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without functools.wraps."""

    def wrapped(method: Any) -> Any:
        return lambda *args, **kwargs: method(*args, **kwargs)

    resets = private.resets_metrics()
    for name in ("fit", "evaluate", "train_on_batch"):
        monkeypatch.setattr(owner, name, wrapped(getattr(keras.Model, name)))
    proof.prove()
    private.resets_metrics.cache_clear()
    assert private.resets_metrics() == resets


def test_only_what_is_listed_is_patched() -> None:
    with pytest.raises(KeyError, match="not in the list"):
        hooks.hook(keras.layers.Dense(1), "count_params", lambda original: original)
