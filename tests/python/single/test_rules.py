"""Pure rules: how states, losses and seeds combine, and which callbacks run where."""

from __future__ import annotations

import types
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import keras
import numpy as np

from tarantella import MismatchError, _exchange
from tarantella._exchange import described
from tarantella.keras import callbacks, epoch_end, replicas
from tarantella.keras.callbacks import placement
from tarantella.keras.step import batch_dependent
from tarantella.keras.step.step import tnt_reduction_of

STATES = [
    {"total": np.array([1.0, 5.0]), "count": np.array(2.0)},
    {"total": np.array([4.0, 2.0]), "count": np.array(3.0)},
]


def combined(rules: Any, names: tuple[str, ...] = ("total", "count")) -> dict[str, Any]:
    metric = types.SimpleNamespace(name="own", tnt_combine=rules)
    return {
        name: np.asarray(each).tolist() for name, each in epoch_end._apply_rules(metric, list(names), STATES).items()
    }


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("sum", {"total": [5, 7], "count": 5}),
        ("max", {"total": [4, 5], "count": 3}),
        ("min", {"total": [1, 2], "count": 2}),
        ({"total": "max"}, {"total": [4, 5], "count": 5}),
        ({"total": "min", "count": "max"}, {"total": [1, 2], "count": 3}),
        (lambda states: states[-1], {"total": [4, 2], "count": 3}),
    ],
)
def test_states_of_metrics_combine_as_they_say(rules: Any, expected: dict[str, Any]) -> None:
    assert combined(rules) == expected


@pytest.mark.parametrize("rules", ["mean", {"total": "mean"}, 3, ["sum"]])
def test_unknown_rules_are_refused(rules: Any) -> None:
    with pytest.raises(ValueError, match="tnt_combine of the metric 'own' must be"):
        epoch_end.rules_of(types.SimpleNamespace(name="own", tnt_combine=rules))


@pytest.mark.parametrize(
    ("rules", "names"), [({"totl": "max"}, ("total", "count")), ("max", ("total", "total"))], ids=["unknown", "twice"]
)
def test_rules_need_the_names_of_the_variables(rules: Any, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="needs its variables by different names"):
        combined(rules, names)


class Subclass(keras.losses.MeanSquaredError):
    pass


def own_function(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.sum(y_true - y_pred, axis=-1)


def with_own_call() -> Any:
    loss = keras.losses.MeanSquaredError()
    loss.call = own_function
    return loss


def wrapped(function: Any) -> Any:
    return keras.losses.MeanSquaredError.__bases__[0](function)


@pytest.mark.parametrize(
    ("make", "is_known"),
    [
        (keras.losses.MeanSquaredError, True),
        (lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"), True),
        (keras.losses.CosineSimilarity, True),
        (lambda: wrapped(keras.losses.mean_squared_error), True),
        (lambda: keras.losses.CosineSimilarity(axis=0), False),
        (lambda: keras.losses.CategoricalCrossentropy(axis=1), False),
        (getattr(keras.losses, "Circle", Subclass), False),
        (lambda: keras.losses.Dice(axis=-1), False),
        (keras.losses.Tversky, False),
        (Subclass, False),
        (with_own_call, False),
        (lambda: wrapped(own_function), False),
        (keras.losses.Loss, False),
    ],
)
def test_losses_of_keras_need_no_other_rows(make: Any, is_known: bool) -> None:
    assert batch_dependent.needs_all_rows(make()) is not is_known


def declared(function: Any) -> Any:
    copy = types.FunctionType(function.__code__, globals(), function.__name__)
    copy.tnt_reduction = "mean"  # type: ignore[attr-defined]
    return copy


@pytest.mark.parametrize(
    ("make", "needs"),
    [
        (keras.metrics.AUC, False),
        (lambda: keras.metrics.MeanMetricWrapper(keras.losses.huber), False),
        (lambda: keras.metrics.MeanMetricWrapper(keras.losses.dice), True),
        (lambda: keras.metrics.CosineSimilarity(axis=0), True),
        (lambda: keras.metrics.MeanMetricWrapper(own_function), True),
        (lambda: keras.metrics.MeanMetricWrapper(declared(own_function)), False),
        (lambda: type("Own", (keras.metrics.Mean,), {})(), True),
        (lambda: type("Own", (keras.metrics.Mean,), {"tnt_combine": "max"})(), False),
        (lambda: wrapped(declared(own_function)), False),
        (lambda: type("Own", (keras.losses.Loss,), {"tnt_reduction": "sum"})(), False),
        (lambda: own_function, True),
        (lambda: declared(own_function), False),
    ],
)
def test_what_the_user_declares_needs_no_other_rows(make: Any, needs: bool) -> None:
    assert batch_dependent.needs_all_rows(make()) is needs


def test_another_reduction_is_refused() -> None:
    function = declared(own_function)
    function.tnt_reduction = "average"
    with pytest.raises(ValueError, match="tnt_reduction of 'own_function' must be 'mean' or 'sum' \\(got 'average'\\)"):
        tnt_reduction_of(wrapped(function))


def test_streams_of_random_numbers_differ_from_rank_to_rank() -> None:
    state = np.array([2**31 - 1, 7], np.uint32)
    folded = [replicas.fold_in(state, rank) for rank in range(64)]
    assert folded[0].tolist() == state.tolist() == [2**31 - 1, 7]
    assert len({int(each[0]) for each in folded}) == 64
    assert all(0 <= each[0] < 2**31 and each[1] == 7 and each.dtype == state.dtype for each in folded)
    assert replicas.fold_in(state, 5).tolist() == folded[5].tolist()


class Own(keras.callbacks.Callback):
    pass


# Callback, whether it prints or writes.
CALLBACKS = [
    (Own, ""),
    (keras.callbacks.EarlyStopping, ""),
    (keras.callbacks.ProgbarLogger, "prints"),
    (lambda: keras.callbacks.CSVLogger("log.csv"), "writes"),
    (lambda: keras.callbacks.ModelCheckpoint("a.keras"), "writes"),
    (lambda: callbacks.Callback(Own()), ""),
    (lambda: callbacks.Callback(Own(), run_on_all_ranks=False), "writes"),
    (lambda: callbacks.Callback(keras.callbacks.CSVLogger("log.csv"), run_on_all_ranks=True), ""),
]


@pytest.mark.parametrize("rank", [0, 1])
def test_callbacks_run_where_they_should(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "is_master_rank", lambda: rank == 0)
    monkeypatch.setattr(placement, "prints_output", lambda: rank == 0)
    made = [(make(), kind) for make, kind in CALLBACKS]
    expected = [each for each, kind in made if rank == 0 or not kind]
    assert placement.for_this_rank([each for each, _ in made]) == expected
    assert placement.for_this_rank(None) == []


def test_callbacks_that_steer_must_be_everywhere() -> None:
    placement._check_steering([["LearningRateScheduler"], ["LearningRateScheduler"]])
    with pytest.raises(ValueError, match="LearningRateScheduler is passed on rank 0, 2 but not on rank 1"):
        placement._check_steering([["LearningRateScheduler"], [], ["LearningRateScheduler"]])


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (["a", "c"], "rank 1 differs from rank 0 in the list: rank 0 has b, rank 1 has c; cure"),
        (["a"], "… in the list: rank 0 has b, rank 1 has no more (the lists have 2 and 1 entries); cure"),
    ],
)
def test_a_mismatch_says_how_long_lists_of_different_lengths_are(
    theirs: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = types.SimpleNamespace(allgather=lambda mine, name: np.stack([mine, mine + 1]))
    monkeypatch.setattr(_exchange.runtime, "context", lambda: digests)
    monkeypatch.setattr(_exchange.runtime, "get_size", lambda: 2)
    monkeypatch.setattr(_exchange, "gather_bytes", lambda mine, context: [mine, "\n".join(theirs).encode()])
    with pytest.raises(MismatchError) as error:
        _exchange.check_equal("the list", ["a", "b"], "cure")
    assert str(error.value).endswith(said.removeprefix("…"))


def test_arrays_are_joined_and_cut() -> None:
    arrays = [np.arange(6.0).reshape(2, 3), np.array(7.0), np.empty((0, 2)), np.array([8.0])]
    flat = _exchange.flatten(arrays, np.float32)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    for joined in (flat, np.append(flat, [9, 9])):  # elements beyond are left out
        parts = _exchange.unflatten(joined, arrays)
        assert [part.tolist() for part in parts] == [each.tolist() for each in arrays]
    assert _exchange.unflatten(_exchange.flatten([], np.float32), []) == []


def test_variables_are_described_without_the_numbers_of_layers() -> None:
    first, second = (
        types.SimpleNamespace(path=f"adam/sequential{a}_dense{b}_kernel_momentum", dtype="float32", shape=(3, 4))
        for a, b in (("", ""), ("_1", "_12"))
    )
    assert described(first) == described(second) == "'adam/sequential_dense_kernel_momentum' float32 (3, 4)"
