"""Updates in one operation have the numbers of Keras's, and Keras makes those that cannot be had so."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("needs the tensorflow backend", allow_module_level=True)

import numpy as np  # noqa: E402

from tarantella._job import runtime  # noqa: E402
from tarantella.keras import private, training  # noqa: E402
from tarantella.keras.step import optimizer as optimizers  # noqa: E402
from tarantella.keras.step import updates  # noqa: E402

ROWS = 1001  # no multiple of what a register holds
KERNELS = {f"ResourceApply{kind}" for kind in ("GradientDescent", "KerasMomentum", "Adam")}

SGD, ADAM, ADAMW = keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW
DECAY = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
CASES = {
    "SGD": (SGD, {}),
    "momentum": (SGD, {"momentum": 0.9}),
    "Nesterov, clipped": (SGD, {"momentum": 0.9, "nesterov": True, "clipnorm": 1.0}),
    "Adam": (ADAM, {}),
    "other betas": (ADAM, {"beta_1": 0.5, "beta_2": 0.98, "epsilon": 1e-3}),
    "averaged": (ADAM, {"use_ema": True}),
    "a schedule, clipped": (ADAM, {"learning_rate": DECAY, "global_clipnorm": 0.1}),
    "AdamW": (ADAMW, {"weight_decay": 0.1}),
}


@pytest.fixture(autouse=True)
def one_of_two_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runtime, "get_size", lambda: 2)
    updates._agrees.cache_clear()
    yield
    updates._agrees.cache_clear()


def distributed(optimizer: Any) -> Any:
    """The optimizer as a rank has it in a loop, with the gradients of no other rank."""
    optimizers.install(optimizer)
    training.set_loop(optimizer, lambda optimizer, gradients, variables, apply: apply(gradients))
    return optimizer


def variable(dtype: str) -> Any:
    """Zeros, so that its numbers are as large as the updates."""
    return keras.Variable(np.zeros(ROWS), dtype=dtype)


def gradients(dtype: str, count: int) -> list[Any]:
    """Of all magnitudes, from far below epsilon on."""
    random = np.random.default_rng(1)
    return [
        tf.constant(random.standard_normal(ROWS) * 10.0 ** random.integers(-9, 2, ROWS), dtype) for _ in range(count)
    ]


def step_of(optimizer: Any, weights: Any) -> Any:
    optimizer.build([weights])
    return tf.function(lambda gradient: optimizer.apply([gradient], [weights]))


def kernels(step: Any, gradient: Any) -> set[str]:
    """Those in a traced step, of its branches too."""
    definition = step.get_concrete_function(gradient).graph.as_graph_def()
    nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
    return {node.op for node in nodes} & KERNELS


def apart(one: Any, other: Any) -> float:
    """The norm of the difference, in parts of the norm."""
    one, other = (np.asarray(each.numpy(), "float64") for each in (one, other))
    return float(np.linalg.norm(one - other) / max(np.linalg.norm(other), 1e-300))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_they_equal_keras_own(case: str, dtype: str) -> None:
    kind, options = CASES[case]
    plain, ours = kind(**options), distributed(kind(**options))
    weights = [variable(dtype), variable(dtype)]
    steps = [step_of(optimizer, each) for optimizer, each in zip((plain, ours), weights, strict=True)]
    given = gradients(dtype, 20)
    for gradient in given:
        for step in steps:
            step(gradient)
    assert not kernels(steps[0], given[0])
    assert len(kernels(steps[1], given[0])) == 1
    tolerance = {"float32": 4e-6, "float64": 1e-14}[dtype]
    assert apart(weights[1], weights[0]) < tolerance
    for one, other in zip(plain.variables, ours.variables, strict=True):
        # float32 has no better 1 - 0.999 than this, of which the second moment is made.
        assert apart(other, one) < max(tolerance, 2e-5 if dtype == "float32" else 0)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}], ids=str)
def test_those_of_sgd_have_the_same_bits(options: dict[str, Any]) -> None:
    plain, ours = SGD(**options), distributed(SGD(**options))
    weights = [variable("float32"), variable("float32")]
    for gradient in gradients("float32", 10):
        for optimizer, each in zip((plain, ours), weights, strict=True):
            optimizer.apply([gradient], [each])
    for one, other in zip([weights[0], *plain.variables], [weights[1], *ours.variables], strict=True):
        np.testing.assert_array_equal(other.numpy(), one.numpy())


def two_steps_of(optimizer: Any, weights: Any) -> Any:
    optimizer.build([weights])

    def steps(one: Any, other: Any) -> None:
        optimizer.apply([one], [weights])
        optimizer.learning_rate.assign(0.01)
        optimizer.apply([other], [weights])

    return tf.function(steps)


def test_two_steps_in_one_graph_are_two_steps() -> None:
    weights = [variable("float64"), variable("float64")]
    for optimizer, each in zip((ADAM(0.1), distributed(ADAM(0.1))), weights, strict=True):
        two_steps_of(optimizer, each)(*gradients("float64", 2))
    assert apart(weights[1], weights[0]) < 1e-14


def test_what_updates_have_in_common_is_computed_once() -> None:
    weights = [variable("float32") for _ in range(3)]
    optimizer = distributed(ADAM())
    optimizer.build(weights)
    step = tf.function(lambda gradient: optimizer.apply([gradient] * 3, weights))
    operations = [each.type for each in step.get_concrete_function(gradients("float32", 1)[0]).graph.get_operations()]
    assert (operations.count("ResourceApplyAdam"), operations.count("Pow")) == (3, 2)


def test_an_optimizer_inside_another_one() -> None:
    inner = ADAM()
    outer = distributed(keras.optimizers.LossScaleOptimizer(inner))
    weights = variable("float32")
    before = weights.numpy()
    step = step_of(outer, weights)
    step(gradients("float32", 1)[0])
    assert not np.array_equal(weights.numpy(), before)
    assert kernels(step, gradients("float32", 1)[0]) == {"ResourceApplyAdam"}


class Subclass(keras.optimizers.SGD):  # type: ignore[misc]
    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.assign(variable, gradient)


@pytest.mark.parametrize(
    "optimizer",
    [
        Subclass(),
        keras.optimizers.RMSprop(),
        ADAM(beta_2=0.9999),
        ADAM(beta_1=0.999),
        ADAM(beta_1=1.0),
        ADAM(amsgrad=True),
    ],
    ids=["a subclass", "RMSprop", "a beta_2 that float32 lacks", "a beta_1 that it lacks", "a beta of 1", "amsgrad"],
)
def test_keras_makes_the_others(optimizer: Any) -> None:
    assert not kernels(step_of(distributed(optimizer), variable("float32")), gradients("float32", 1)[0])


def test_keras_makes_those_of_16_bits_of_sparse_gradients_and_under_xla() -> None:
    for dtype in ("float16", "bfloat16"):
        assert not kernels(step_of(distributed(SGD()), variable(dtype)), gradients(dtype, 1)[0])
    optimizer, weights = distributed(SGD()), variable("float32")
    optimizer.build([weights])
    slices = tf.IndexedSlices(tf.constant([1.0]), tf.constant([3]), tf.constant([ROWS]))
    before = weights.numpy()
    optimizer.apply([slices], [weights])
    assert np.flatnonzero(weights.numpy() != before).tolist() == [3]
    compiled = tf.function(lambda gradient: optimizer.apply([gradient], [weights]), jit_compile=True)
    assert not kernels(compiled, gradients("float32", 1)[0])


def test_one_rank_and_other_uses_of_an_optimizer_are_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = gradients("float32", 1)[0]
    unused = SGD(momentum=0.9)
    optimizers.install(unused)
    assert not kernels(step_of(unused, variable("float32")), gradient)
    monkeypatch.setattr(runtime, "get_size", lambda: 1)
    assert not kernels(step_of(distributed(SGD(momentum=0.9)), variable("float32")), gradient)


def by_name(self: Any, gradient: Any, variable: Any, learning_rate: Any) -> None:
    """An update of a user that depends on what the variable is called."""
    self.assign_sub(variable, gradient * learning_rate * (0.5 if "variable" in variable.name else 1.0))


@pytest.mark.parametrize("where", ["instance", "class", "class, after a step", "its assign_sub"])
def test_an_update_that_a_user_has_replaced_is_the_users(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = gradients("float32", 1)[0]
    if where == "class, after a step":
        assert kernels(step_of(distributed(SGD(1.0)), variable("float32")), gradient)
    if where.startswith("class"):
        monkeypatch.setattr(SGD, "update_step", by_name)
    optimizer = SGD(1.0)
    if where == "instance":
        optimizer.update_step = functools.partial(by_name, optimizer)
    if where == "its assign_sub":
        assign_sub = optimizer.assign_sub
        optimizer.assign_sub = lambda variable, value: assign_sub(variable, value * 0.5)
    weights = variable("float32")
    step = step_of(distributed(optimizer), weights)
    assert not kernels(step, gradient)
    step(gradient)
    np.testing.assert_array_equal(weights.numpy(), -0.5 * gradient.numpy())


def test_what_only_keras_can_broadcast_is_left_to_it() -> None:
    for optimizer, gradient in (
        (SGD(lambda: tf.fill([ROWS], 0.5)), tf.ones([ROWS])),
        (SGD(0.5, momentum=0.9), tf.ones([])),
    ):
        weights = variable("float32")
        distributed(optimizer).build([weights])
        optimizer.apply([gradient], [weights])
        np.testing.assert_array_equal(weights.numpy(), np.full(ROWS, -0.5))


def test_a_trial_that_fails_for_lack_of_memory_ends_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(updates, "_trial", no_memory)
    optimizer, weights = distributed(SGD()), variable("float32")
    optimizer.build([weights])
    with pytest.raises(MemoryError):
        optimizer.apply(gradients("float32", 1), [weights])


def other_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    update = ADAM.update_step

    def updated(self: Any, gradient: Any, variable: Any, learning_rate: Any) -> None:
        update(self, gradient, variable, learning_rate * (1 + 1e-4))

    monkeypatch.setattr(ADAM, "update_step", updated)
    monkeypatch.setattr(private, "is_keras_own", lambda method: True)


def other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def slots_of(*_: Any) -> Any:
        raise AttributeError("_momentums")

    monkeypatch.setattr(private, "slots_of", slots_of)


@pytest.mark.parametrize("change", [other_formula, other_name], ids=lambda each: each.__name__)
def test_keras_makes_those_that_a_later_keras_may_have_changed(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch)
    plain, ours = ADAM(), distributed(ADAM())
    weights = [variable("float32"), variable("float32")]
    for gradient in gradients("float32", 3):
        for optimizer, each in zip((plain, ours), weights, strict=True):
            optimizer.apply([gradient], [each])
    np.testing.assert_array_equal(weights[1].numpy(), weights[0].numpy())
    assert not kernels(step_of(ours, weights[1]), gradients("float32", 1)[0])


def test_a_momentum_that_is_no_number_is_left_to_keras() -> None:
    optimizer = distributed(SGD(momentum=0.9))
    weights = variable("float32")
    optimizer.build([weights])
    optimizer.momentum = np.array(0.5)
    assert not kernels(step_of(optimizer, weights), gradients("float32", 1)[0])


def test_a_value_read_before_an_update_stays() -> None:
    optimizer, weights = distributed(SGD(momentum=0.9)), variable("float32")
    optimizer.build([weights])
    before, copied = weights.value.read_value(), weights.numpy().copy()

    @tf.function
    def step(gradient: Any) -> Any:
        kept = weights.value.read_value()
        optimizer.apply([gradient], [weights])
        return kept

    kept = step(gradients("float32", 1)[0])
    np.testing.assert_array_equal(kept, copied)
    np.testing.assert_array_equal(before, copied)
    assert not np.array_equal(weights.numpy(), copied)
