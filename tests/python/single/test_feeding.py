"""Errors for data that does not fit, and for steps that fail because of it."""

from __future__ import annotations

import types
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from tarantella._job import log
from tarantella.data.input import DataArguments, checked_input
from tarantella.keras import limitations, model_state, replicas


def test_data_that_keras_refuses_get_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "warn_once", said.append)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="Keras does not accept data of type list"):
        checked_input(DataArguments("training data", ["a", "b"], batch_size=4), model)
    assert said == []
    checked_input(DataArguments("training data", tf.data.Dataset.from_tensors(tf.ones((2, 3))), batch_size=4), model)
    assert len(said) == 1


class Own(keras.Model):
    def train_step(self, batch: Any) -> Any:
        tf.ensure_shape(batch, [2])  # the rows of a whole batch
        return {}


def raised(rows_of_a_batch: Any, steps: int = 0) -> str:
    """The error that `fit` ends with where a step, or a callback after `steps` steps, raises one."""
    model = Own()
    model_state.of(model).reset_for_call()
    for _ in range(steps):
        replicas.before_step(model)
    batches = types.SimpleNamespace(element_spec=types.SimpleNamespace(data=tf.TensorSpec([None], tf.float32)))
    part: Any = types.SimpleNamespace(rows_of_a_batch=rows_of_a_batch, batches=batches)
    with (
        pytest.raises(ValueError, match="the") as caught,
        limitations.explaining_row_errors(model, "train", part),
    ):
        raise ValueError("the first one")
    return str(caught.value)


def test_the_first_error_is_shown_where_rows_cannot_be_counted() -> None:
    def fails() -> int:
        raise OSError("__getitem__ of the user's own")

    assert raised(fails) == "the first one"


def test_steps_that_have_run_are_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarantella._job.runtime.get_size", lambda: 2)
    assert "this rank's 1 of the 2 rows" in raised(lambda: 2)
    assert "this rank's 1 of the 2 rows" in raised(lambda: 2, steps=1)  # the first one fails
    assert raised(lambda: 2, steps=2) == "the first one"
