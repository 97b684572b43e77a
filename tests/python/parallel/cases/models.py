"""Kinds of models, and models that are saved, loaded, cloned and rebuilt."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
from common import CLASSES, FEATURES, Wrap, case, compiled, data, folder, full, mlp, on_ranks, results, trained


def models() -> Any:
    return sys.modules["tarantella"].models if on_ranks() else keras.models


def fitted(model: Any, **options: Any) -> Any:
    x, y = data()
    return model.fit(x, y, **{"batch_size": 7, "epochs": 2, "shuffle": False, "verbose": 0, **options})


@case
def nested_and_shared(wrap: Wrap) -> Any:
    inner = mlp()
    shared = keras.layers.Dense(FEATURES, activation="tanh")
    inputs = keras.Input((FEATURES,))
    outputs = inner(shared(shared(inputs))) + inner(inputs)
    model = compiled(wrap(keras.Model(inputs, outputs)))
    x, y = data()
    return {**results(model, fitted(model), x, y), "inner": inner.get_weights()}


class Own(keras.Model):
    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(**options)
        self.units = units
        self.hidden = keras.layers.Dense(units, activation="tanh")
        self.towers = [mlp(), mlp()]

    def call(self, inputs: Any, training: bool = False) -> Any:
        hidden = self.hidden(inputs["a"]) + inputs["b"]
        return {"sum": self.towers[0](hidden) + self.towers[1](hidden), "hidden": hidden}

    def get_config(self) -> Any:
        return {**super().get_config(), "units": self.units}


def own_loss(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)


@full
@case
def subclassed_with_structures_saved_and_loaded(wrap: Wrap) -> Any:
    path = folder("subclassed") / "model.keras"
    x, y = data()
    inputs, targets = {"a": x, "b": x + 1}, {"sum": y, "hidden": x}
    losses = {"sum": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "hidden": own_loss}
    model = wrap(Own(FEATURES))
    model.compile(keras.optimizers.Adam(0.01), losses, metrics={"sum": ["accuracy"]})
    model.fit(inputs, targets, batch_size=7, epochs=2, verbose=0)
    model.save(path)
    loaded = models().load_model(path, custom_objects={"Own": Own, "own_loss": own_loss})
    history = loaded.fit(inputs, targets, batch_size=7, epochs=1, verbose=0)
    return {**trained(loaded, history), "predict": loaded.predict(inputs, batch_size=9, verbose=0)}


@case
def saved_loaded_and_gone_on(wrap: Wrap) -> Any:
    """The state of the optimizer survives: an unbroken run has the same weights."""
    path = folder("whole")
    whole, broken = (compiled(wrap(mlp()), keras.optimizers.Adam(0.01)) for _ in range(2))
    whole.set_weights(broken.get_weights())
    fitted(whole, epochs=4)
    fitted(broken)
    found = {}
    broken.save(path / "model.keras")
    loaded = models().load_model(path / "model.keras")
    found["model"] = trained(loaded, fitted(loaded))
    broken.save_weights(path / "model.weights.h5")
    loaded = compiled(wrap(mlp()), keras.optimizers.Adam(0.01))
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.load_weights(path / "model.weights.h5")
    found["weights"] = trained(loaded, fitted(loaded))
    for each in found.values():
        for ours, wanted in zip(each["weights"], whole.get_weights(), strict=True):
            np.testing.assert_allclose(ours, wanted, 1e-9, 1e-9)
    return found


@case
def cloned_and_rebuilt(wrap: Wrap) -> Any:
    model = wrap(mlp())
    config = model.get_config()
    rebuilt = [
        models().clone_model(model),
        models().model_from_json(model.to_json()),
        models().model_from_config(config) if on_ranks() else keras.Sequential.from_config(config),
        sys.modules["tarantella"].Model.from_config(config) if on_ranks() else keras.Sequential.from_config(config),
    ]
    found = []
    for each in rebuilt:
        assert type(each) is type(model)
        each.set_weights(model.get_weights())
        found.append(trained(compiled(each), fitted(each)))
    return found


@case
def sequential_of_our_own(wrap: Wrap) -> Any:
    layers = [keras.Input((FEATURES,)), keras.layers.Dense(4, activation="tanh", name="first")]
    kind = sys.modules["tarantella"].Sequential if on_ranks() else keras.Sequential
    model = kind(layers, name="ours")
    model.add(keras.layers.Dense(CLASSES))
    lines: list[str] = []
    model.summary(print_fn=lines.append)
    compiled(model)
    history = fitted(model)
    return {
        **trained(model, history),
        "layer": model.get_layer("first").get_weights(),
        "summary": len("".join(lines)),
        "attributes": [model.name, len(model.layers), model.count_params(), model.output_shape[1], model.built],
    }
