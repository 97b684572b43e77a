"""When each fact that is known of a model lapses."""

from __future__ import annotations

import contextlib
import functools
import gc
import types
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import keras

from tarantella._job import runtime
from tarantella.keras import epoch_end, files, fit, model_state, replicas, start
from tarantella.keras.step import batch_dependent, first_batch, gradients, metrics


class Model:
    """As much of a Keras model as the facts need."""

    name = "model"
    compiled = False
    trainable_variables: tuple[Any, ...] = ()
    non_trainable_weights: tuple[Any, ...] = ()
    resets = 0

    def compile(self) -> None:
        self.compiled = True
        self._loss_tracker = object()

    def _flatten_layers(self, include_self: bool = True) -> list[Any]:
        return []

    def reset_metrics(self) -> None:
        self.resets += 1


@pytest.fixture
def model() -> Any:
    made = Model()
    made.compile()
    return made


def test_facts_end_with_the_model() -> None:
    gc.collect()  # the models of tests before this one
    before = len(model_state._known)
    kept, passing = Model(), Model()
    for each in (kept, passing):
        model_state.of(each).reset_for_call()
        model_state.of(each).added_sum(each, True, 0)
    assert len(model_state._known) == before + 2
    del each, passing
    gc.collect()
    assert len(model_state._known) == before + 1
    assert model_state.get(kept) is model_state.of(kept)


def test_each_model_has_its_own(model: Any) -> None:
    other = Model()
    assert model_state.get(model) is None
    model_state.of(model).stepped_since_sync = True
    assert model_state.get(other) is None
    assert not model_state.of(other).stepped_since_sync


def test_a_call_ends_with_its_block_and_gives_way_to_the_one_around_it(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "is_master_rank", lambda: False)
    outer, inner = model_state.Call(trains=True), model_state.Call(trains=False)
    with model_state.during(model, outer):
        with contextlib.suppress(KeyError), model_state.during(model, inner):
            assert model_state.of(model).call is inner
            raise KeyError
        assert model_state.of(model).call is outer
        assert model.resets == 0  # the metrics hold the state of all ranks
        outer.metrics_are_local = True
        with model_state.during(model, None):
            assert model_state.of(model).call is None
        assert model.resets == 1  # the master goes on from the state that the inner call left
    assert model_state.of(model).call is None


def test_saving_by_the_master_ends_with_the_outermost_block() -> None:
    model = keras.Sequential()
    with files.by_master(model):
        with files.by_master(model):
            assert model_state.of(model).saved_by_master
        assert model_state.of(model).saved_by_master
    assert not model_state.of(model).saved_by_master


def test_what_was_read_lapses_with_the_next_call_whatever_its_dataset(model: Any) -> None:
    model_state.of(model).reset_for_call()
    model_state.note_batch(model, 7)
    model_state.note_batch(model, 8, [keras.ops.convert_to_tensor([float("nan"), 1.0])])
    for _ in range(2):
        replicas.before_step(model)
    found = model_state.of(model)
    assert (int(found.data_fingerprint), int(found.nan_labels), found.completed) == (15, 1, 1)
    model_state.of(model).reset_for_call()
    assert (int(found.data_fingerprint), int(found.nan_labels), found.completed) == (0, 0, -1)


def test_layers_are_apart_from_a_step_until_the_next_average(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    averages: list[Any] = []
    monkeypatch.setattr(epoch_end, "average_of", lambda model, differ: averages.append(differ) or [])
    monkeypatch.setattr("tarantella.keras.replicas.differing", list)
    model_state.of(model).reset_for_call()
    start.from_master(model, [])
    replicas.before_step(model)
    model_state.of(model).reset_for_call()  # another call does not bring them together
    for _ in range(2):
        start.from_master(model, [])
    assert len(averages) == 1


def test_ranks_are_equal_for_single_batches_of_a_kind_until_the_next_compile(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr("tarantella.keras.start.synchronize_for_batches", lambda *arguments: started.append(arguments))
    batch = types.SimpleNamespace(data=(), metadata=(2, 4), _replace=lambda data: batch)
    monkeypatch.setattr("tarantella.keras.start.from_master", lambda *arguments: None)
    model.weights = []
    for kind in ("predict", "train", "test", "train", "predict"):
        fit._start(model, kind, batch)
    model_state.of(model).reset_for_call()
    fit._start(model, "train", batch)  # fit and evaluate leave them equal
    assert [kind for _, kind, *_ in started] == ["predict", "train", "test"]
    model.compile()
    for _ in range(2):
        fit._start(model, "train", batch)
    assert len(started) == 4


def test_a_model_that_was_not_compiled_is_made_equal_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr("tarantella.keras.start.synchronize_for_batches", lambda *arguments: started.append(arguments))
    monkeypatch.setattr("tarantella.keras.start.from_master", lambda *arguments: None)
    model: Any = Model()
    model.weights = []
    batch = types.SimpleNamespace(data=(), metadata=(2, 4), _replace=lambda data: batch)
    for _ in range(2):
        fit._start(model, "predict", batch)
    assert len(started) == 1


def test_weight_checks_count_on_until_their_setting_changes(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    monkeypatch.setattr(replicas, "same_weights", compared.append)

    def compares(steps: int) -> int:
        compared.clear()
        model_state.of(model).reset_for_call()
        for _ in range(steps):
            replicas.before_step(model)
        return len(compared)

    monkeypatch.setenv("TNT_WEIGHT_CHECK_STEPS", "4")
    assert [compares(3), compares(3)] == [0, 1]
    monkeypatch.setenv("TNT_WEIGHT_CHECK_STEPS", "0")
    assert compares(50) == 0
    monkeypatch.setenv("TNT_WEIGHT_CHECK_STEPS", "2")
    assert compares(4) > 1
    monkeypatch.delenv("TNT_WEIGHT_CHECK_STEPS")
    assert compares(1000) == 10


def test_metrics_of_logs_lapse_when_a_step_is_traced_again(model: Any) -> None:
    metric = keras.metrics.Mean()
    value = metric.result()
    step: Any = types.SimpleNamespace(model=model, results={id(value): (value, metric, 0)}, rows=3)
    metrics.note_logs(step, True, {"own": value})
    found = model_state.of(model).logs
    assert found[True].log_sources["own"].is_metric
    assert False not in found  # evaluation is traced by itself
    step.results = {}
    rows = found[True].rows
    metrics.note_logs(step, True, {"own": value})
    assert not found[True].log_sources["own"].is_metric
    assert found[True].rows is rows  # graphs that were traced before add to it
    assert int(rows) == 3


def test_what_layers_add_is_known_for_each_model_and_kind_of_step(model: Any) -> None:
    layer = keras.layers.Layer()
    found = model_state.of(model)
    assert not found.is_added_known(layer, True, 0)
    found.added_sum(layer, True, 0).assign(1)
    assert int(found.added_sum(layer, True, 0)) == 1 and found.is_added_known(layer, True, 0)
    assert not found.is_added_known(layer, False, 0) and not model_state.of(Model()).is_added_known(layer, True, 0)


def test_a_first_batch_is_looked_at_once_or_until_it_tells_enough(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bool] = []

    def try_out(model: Any, trains: bool, batch: Any) -> None:
        looked.append(trains)
        model_state.of(model).undecided = {trains} if len(looked) < 3 else set()

    monkeypatch.setattr(first_batch, "_try_out", try_out)
    monkeypatch.setattr(batch_dependent, "candidates", lambda model: [0])
    model.steps_per_execution = 2

    def run(batches: Iterator[int]) -> list[int]:
        return list(first_batch.inspect_first_batch(model, True, batches))

    assert run(iter([1, 2])) == [1, 2] and looked == []  # of this rank alone
    with model_state.during(model, model_state.Call(trains=True)):
        for looks in (1, 2, 3, 3):
            assert run(iter([1, 2, 3])) == [1, 2, 3] and run(iter([4])) == [4]
            assert len(looked) == looks
            model_state.of(model).try_again()


def test_what_a_loop_does_is_the_last_setting() -> None:
    optimizer = keras.optimizers.SGD()
    assert optimizer not in model_state.loops
    model_state.loops[optimizer] = functools.partial(gradients.reduce_and_apply, 0.5)
    last = functools.partial(gradients.reduce_and_apply, 1.0)
    model_state.loops[optimizer] = last
    assert model_state.loops[optimizer] is last
    gc.collect()
    before = len(model_state.loops)
    del optimizer
    gc.collect()
    assert len(model_state.loops) == before - 1
