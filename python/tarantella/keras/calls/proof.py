"""Proves, once a process, that this Keras means by its private names what the hooks take them to mean.

A made-up rank takes one eager step of a model with two weights through the hooks, on three of four rows. What another
rank brings to the sums for the row before is written down below, as is what plain Keras makes of all four rows. No
other process is waited for. A thread of its own keeps the step out of the user's scopes, policies and automatic names,
which Keras has for each thread; nothing draws random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from ..._backend import backend
from ...data.rows import MicroBatch
from .. import hooks, private
from ..step.step import Step, running
from . import install, meanings

# Zeros are masked: 1 number is left of the other rank's row, 5 of this rank's three rows.
_X = np.array([[1, 0], [2, 3], [4, 0], [1, 2]])[..., None]
_Y = np.ones((4, 2, 1))
ROWS = slice(1, 4)
# Where a hook does not act, numbers are off by a factor; floatx may be float16.
_TOLERANCE = 1e-2


class Numbers(NamedTuple):
    """What a step gives."""

    weights: Any
    states: dict[str, Any]  # of the losses and metrics, by name: total and count
    losses: Any  # of regularizers, after the step
    normalized: Any  # what BatchNormalization makes of the rows, in training


# What the other rank brings to each sum.
OTHERS: Mapping[str, Any] = {
    "gradients": [[10 / 3], [7 / 3]],
    "divisor 0 of the loss 'mean'": [1.0],
    "moments 0 of 'normalization'": [[1.0, 1.0, 1.0]],  # count, sum and sum of squares
}
# Plain Keras's weights, and this rank's part of plain Keras's other numbers.
KNOWN = Numbers(
    [[-233 / 24], [-67 / 24]],
    {"loss": [494 / 3, 3.0], "mean_loss": [68 / 3, 3.0], "sum_loss": [136.0, 3.0], "error": [3.0, 0.75]},
    [1.5 * (233 / 24) ** 2],
    (_X[ROWS] - 13 / 6) / np.sqrt(41 / 36 + 1e-3),
)

_lock = threading.Lock()
_proven = False


def once() -> None:
    """Raises NotImplementedError where Keras is not as it must be; does nothing where it has been found to be.

    It does not wait for other ranks.
    """
    global _proven
    with _lock:
        if not _proven:
            prove()
            _proven = True


def prove() -> None:
    """As `once`, every time."""
    try:
        with backend.quick_kernels():
            found = backend.apart(_found)
    except private.UnknownKerasError:
        raise
    except Exception as error:
        raise private.refusal(f"fails in a step on made-up data ({type(error).__name__}: {error})") from error
    _compare("the weights after a step", found.weights, KNOWN.weights)
    for name, state in KNOWN.states.items():
        _compare("the states of losses and metrics", found.states.get(name), state)
    _compare("the losses of regularizers", found.losses, KNOWN.losses)
    _compare("BatchNormalization", found.normalized, KNOWN.normalized)


def _compare(what: str, found: Any, known: Any) -> None:
    if np.shape(found) != np.shape(known) or not np.allclose(found, known, _TOLERANCE, _TOLERANCE):
        raise private.refusal(f"gives other numbers through the hooks of several ranks ({what})")


def _found() -> Numbers:
    rank = Rank(ROWS, OTHERS)
    with keras.device("cpu:0"):
        found = rank.step()
        meanings.check(rank.model, rank.logs)
        return found


class _Model(keras.Model):
    def __init__(self) -> None:
        super().__init__(name="proof", dtype=keras.config.floatx())
        self.normalization = keras.layers.BatchNormalization(
            synchronized=True, center=False, scale=False, name="normalization", dtype=keras.config.floatx()
        )

    def build(self, shape: Any) -> None:
        penalty = keras.regularizers.L2(2.0)
        self.kernel = self.add_weight((1,), "ones", self.dtype, regularizer=penalty, name="kernel")
        self.bias = self.add_weight((1,), "ones", self.dtype, name="bias")

    def call(self, x: Any) -> Any:
        y = x * self.kernel + self.bias
        private.set_mask(y, _mask(x))
        return y, y * 1.0  # with a mask and without


def _mask(x: Any) -> Any:
    return ops.not_equal(x[..., 0], 0.0)


def _error(y_true: Any, y_pred: Any, factor: float) -> Any:
    return factor * ops.mean(ops.abs(y_pred - y_true))


_error.tnt_reduction = "mean"  # type: ignore[attr-defined]


def model() -> Any:
    made = _Model()
    made.compile(
        keras.optimizers.SGD(0.125, name="optimizer"),
        [keras.losses.MeanSquaredError(name="mean"), keras.losses.MeanSquaredError("sum", name="sum")],
        metrics=[[], [keras.metrics.MeanMetricWrapper(_error, name="error", factor=2.0)]],
        run_eagerly=True,
        jit_compile=False,
        auto_scale_loss=False,
    )
    return made


def data(rows: slice) -> Any:
    y = _tensor(_Y[rows])
    return _tensor(_X[rows]), (y, y)


def _tensor(array: Any) -> Any:
    """In floatx, as all of the model: Keras adds up no losses of other types."""
    return ops.convert_to_tensor(array, keras.config.floatx())


def numbers(model: Any, x: Any) -> Numbers:
    """Those of a model after a step on rows with the inputs `x`."""
    return Numbers(
        _arrays(model.trainable_variables),
        {metric.name: _arrays(metric.variables) for metric in private.metrics_of(model)},
        _arrays(model.losses),
        _arrays([model.normalization(x, training=True, mask=_mask(x))])[0],
    )


def _arrays(values: Any) -> list[Any]:
    return [ops.convert_to_numpy(ops.cast(value, "float32")) for value in values]


class Rank:
    """A made-up rank in this thread: it has these rows, and is told what the others bring to each sum."""

    def __init__(self, rows: slice, others: Mapping[str, Any]) -> None:
        self.model = model()
        self.brought: dict[str, Any] = {}  # to each sum
        self.logs: Any = None
        self._rows, self._others = rows, others
        self._thread = threading.current_thread()

    def step(self) -> Numbers:
        """Takes a step through the hooks."""
        counts = ops.convert_to_tensor(np.array([self._rows.stop - self._rows.start, len(_X), 0], "int64"))
        batch = MicroBatch(data(self._rows), counts)
        install.install(self.model)
        with self._exchanging():
            self.logs = self.model.train_step(batch)
            self.model.tnt_reduction = "sum"  # then regularizers are weighted by themselves
            with running(Step(self.model, batch)):
                return numbers(self.model, batch.data[0])

    @contextlib.contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Meanwhile this thread, and no other, sums over the made-up ranks."""
        sums: dict[str, Callable[..., Any]] = {
            "allreduce": lambda _, gradients, *rest, **more: self._sums("gradients", gradients),
            "sum_over_ranks": lambda _, name, part: self._sums(name, [part])[0],
            "differentiable_sum": lambda _, name, part: self._sums(name, [part])[0],
        }
        with contextlib.ExitStack() as stack:
            for name, ours in sums.items():
                stack.enter_context(hooks.hooking(backend, name, functools.partial(self._instead, ours)))
            yield

    def _sums(self, name: str, parts: list[Any]) -> list[Any]:
        self.brought[name] = _arrays(parts)
        others = (ops.convert_to_tensor(each, part.dtype) for part, each in zip(parts, self._others[name], strict=True))
        return [part + each for part, each in zip(parts, others, strict=True)]

    def _instead(self, ours: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return (ours if threading.current_thread() is self._thread else original)(*args, **kwargs)

        return call
