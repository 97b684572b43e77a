"""Temporary changes to the user's objects are undone."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tarantella.keras import hooks, limitations


def test_a_call_that_the_user_has_set_on_a_loss_stays():
    loss = keras.losses.MeanSquaredError()
    assert "call" not in vars(loss)
    with hooks.collecting(loss, "call"):
        pass
    assert "call" not in vars(loss)

    def own(y_true, y_pred):
        return keras.ops.abs(y_true - y_pred)

    loss.call = own
    with hooks.collecting(loss, "call") as values:
        assert float(loss(np.zeros(2), np.full(2, 3.0))) == 3.0
    assert [list(np.asarray(each)) for each in values] == [[3.0, 3.0]]
    assert loss.call is own


def test_jit_compile_stays_when_the_training_step_cannot_be_made():
    table = keras.layers.Embedding(3, 2)
    table.build()

    def fails(force):
        raise RuntimeError("of the user's own")

    model = SimpleNamespace(
        jit_compile=True, train_function=None, _flatten_layers=lambda include_self: [table], make_train_function=fails
    )
    with pytest.raises(RuntimeError, match="of the user's own"):
        limitations.no_xla_where_impossible(model, "train")
    assert model.jit_compile


def test_steps_are_not_compiled_where_there_are_gpus(monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["GPU:0"] if kind == "GPU" else [])
    made = []

    def make(kind):
        return lambda force: made.append((kind, force, model.jit_compile))

    model = SimpleNamespace(
        jit_compile=True,
        train_function=None,
        test_function=None,
        _flatten_layers=lambda include_self: [],
        make_train_function=make("train"),
        make_test_function=make("test"),
    )
    limitations.no_xla_where_impossible(model, "train", "test")
    assert made == [("train", True, False), ("test", True, False)]
    assert model.jit_compile
