"""Updates in one pass over memory have the numbers of Keras's, and Keras makes those that cannot be had so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("needs the tensorflow backend", allow_module_level=True)

import numpy as np  # noqa: E402

from tarantella.keras import private, training  # noqa: E402
from tarantella.keras.step import optimizer as optimizers  # noqa: E402
from tarantella.keras.step import updates  # noqa: E402

ROWS = 1001  # no multiple of what a register holds
KERNELS = {f"ResourceApply{kind}" for kind in ("GradientDescent", "KerasMomentum", "Adam", "AdamWithAmsgrad")}

SGD, ADAM, ADAMW = keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW
DECAY = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
CASES = {
    "SGD": (SGD, {}),
    "momentum": (SGD, {"momentum": 0.9}),
    "Nesterov, clipped": (SGD, {"momentum": 0.9, "nesterov": True, "clipnorm": 1.0}),
    "Adam": (ADAM, {}),
    "other betas": (ADAM, {"beta_1": 0.5, "beta_2": 0.98, "epsilon": 1e-3}),
    "amsgrad, averaged": (ADAM, {"amsgrad": True, "use_ema": True}),
    "a schedule, clipped": (ADAM, {"learning_rate": DECAY, "global_clipnorm": 0.1}),
    "AdamW": (ADAMW, {"weight_decay": 0.1}),
}


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    updates._agrees.cache_clear()
    yield
    updates._agrees.cache_clear()


def distributed(optimizer: Any) -> Any:
    """The optimizer as a rank has it in a loop, with the gradients of no other rank."""
    optimizers.install(optimizer)
    training.set_loop(optimizer, lambda optimizer, gradients, variables, apply: apply(gradients))
    return optimizer


def variable(dtype: str) -> Any:
    return keras.Variable(np.random.default_rng(0).standard_normal(ROWS), dtype=dtype)


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_they_equal_kerass(case: str, dtype: str) -> None:
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
    tolerance = {"float32": 1e-6, "float64": 1e-15}[dtype]
    np.testing.assert_allclose(weights[1].numpy(), weights[0].numpy(), tolerance, tolerance * 0.1)
    for one, other in zip(plain.variables, ours.variables, strict=True):
        # float32 has no better 1 - 0.999 than this, of which the second moment is made.
        np.testing.assert_allclose(other.numpy(), one.numpy(), 2e-5 if dtype == "float32" else 1e-14, tolerance)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}], ids=str)
def test_those_of_sgd_have_the_same_bits(options: dict[str, Any]) -> None:
    plain, ours = SGD(**options), distributed(SGD(**options))
    weights = [variable("float32"), variable("float32")]
    for gradient in gradients("float32", 10):
        for optimizer, each in zip((plain, ours), weights, strict=True):
            optimizer.apply([gradient], [each])
    for one, other in zip([weights[0], *plain.variables], [weights[1], *ours.variables], strict=True):
        np.testing.assert_array_equal(other.numpy(), one.numpy())


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
    [Subclass(), keras.optimizers.RMSprop(), ADAM(beta_2=0.9999), keras.optimizers.Lion()],
    ids=["a subclass", "RMSprop", "a beta_2 that float32 lacks", "Lion"],
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


def test_one_rank_and_other_uses_of_an_optimizer_are_keras() -> None:
    optimizer = SGD(momentum=0.9)
    optimizers.install(optimizer)
    assert not kernels(step_of(optimizer, variable("float32")), gradients("float32", 1)[0])


def other_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    update = ADAM.update_step

    def updated(self: Any, gradient: Any, variable: Any, learning_rate: Any) -> None:
        update(self, gradient, variable, learning_rate * (1 + 1e-4))

    monkeypatch.setattr(ADAM, "update_step", updated)


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
