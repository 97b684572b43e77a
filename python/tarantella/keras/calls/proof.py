"""Proves, once a process, that this Keras means by its private names what the hooks take them to mean.

Two made-up ranks, a thread each, take one eager step of a model with two weights through the hooks, on one and on three
of four rows, and exchange sums in memory. Plain Keras takes the step on all four rows: weights, losses and metrics must
be the same. No other process is waited for. Threads of its own keep it out of the user's scopes, policies and automatic
names, which Keras has for each thread; nothing draws random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from ..._backend import backend
from ...data.rows import MicroBatch
from .. import hooks, private
from ..step.step import Step, running
from ..trials import reduction
from . import install

# Zeros are masked: 1 number is left of the first rank's row, 5 of the second rank's three rows.
_X = np.array([[1, 0], [2, 3], [4, 0], [1, 2]])[..., None]
_Y = np.ones((4, 2, 1))
_ROWS = (slice(0, 1), slice(1, 4))
# Where a hook does not act, numbers are off by a factor; floatx may be float16.
_TOLERANCE = 1e-2
_TIMEOUT = 60.0


class _Numbers(NamedTuple):
    """What a step gives."""

    weights: list[Any]
    states: list[Any]  # of the losses and metrics
    losses: list[Any]  # of regularizers, after the step
    normalized: list[Any]  # what BatchNormalization makes of the rows, in training


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
        with ThreadPoolExecutor(2) as threads:
            plain = threads.submit(_plain).result()
            ranks = _Ranks()
            with ranks.exchanging():
                one, other = (each.result() for each in [threads.submit(ranks.run, rank) for rank in range(2)])
    except NotImplementedError:
        raise
    except Exception as error:
        raise private.refusal(f"fails in a step on made-up data ({type(error).__name__}: {error})") from error
    for each in (one, other):
        _compare("the weights after a step", each.weights, plain.weights)
    _compare("the states of losses and metrics", list(map(operator.add, one.states, other.states)), plain.states)
    _compare("the losses of regularizers", list(map(operator.add, one.losses, other.losses)), plain.losses)
    _compare("BatchNormalization", [np.concatenate([one.normalized[0], other.normalized[0]])], plain.normalized)


def _compare(what: str, ours: list[Any], plain: list[Any]) -> None:
    shapes = [np.shape(each) for each in ours] == [np.shape(each) for each in plain]
    if not shapes or not all(np.allclose(a, b, _TOLERANCE, _TOLERANCE) for a, b in zip(ours, plain, strict=True)):
        raise private.refusal(f"gives other numbers through the hooks of several ranks ({what})")


class _Model(keras.Model):
    def __init__(self) -> None:
        super().__init__(name="proof", dtype=keras.config.floatx())
        self.normalization = keras.layers.BatchNormalization(
            momentum=0.5, synchronized=True, name="normalization", dtype=keras.config.floatx()
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


def _model() -> Any:
    model = _Model()
    model.compile(
        keras.optimizers.SGD(0.125, name="optimizer"),
        [keras.losses.MeanSquaredError(name="mean"), keras.losses.MeanSquaredError("sum", name="sum")],
        metrics=[[], [keras.metrics.MeanMetricWrapper(_error, name="error", factor=2.0)]],
        run_eagerly=True,
        jit_compile=False,
        auto_scale_loss=False,
    )
    return model


def _data(rows: slice) -> Any:
    y = _tensor(_Y[rows])
    return _tensor(_X[rows]), (y, y)


def _tensor(array: Any) -> Any:
    """In floatx, as all of the model: Keras adds up no losses of other types."""
    return ops.convert_to_tensor(array, keras.config.floatx())


def _arrays(values: Any) -> list[Any]:
    return [ops.convert_to_numpy(ops.cast(value, "float32")) for value in values]


def _normalized(model: Any, x: Any) -> list[Any]:
    return _arrays([model.normalization(x, training=True, mask=_mask(x))])


def _plain() -> _Numbers:
    """What plain Keras gives for all rows. Raises NotImplementedError for a name that is missing or means another."""
    with keras.device("cpu:0"):
        model, data = _model(), _data(slice(4))
        logs = model.train_step(data)
        found = _Numbers(
            _arrays(model.trainable_variables), _arrays(model.metrics_variables), _arrays(model.losses), []
        )
        found = found._replace(normalized=_normalized(model, data[0]))
        samples = _samples(model)
        private.check(samples)
        for what, holds in _meanings(model, logs, samples).items():
            if not holds():
                raise private.refusal(f"means something else by {what}")
        return found


def _samples(model: Any) -> dict[str, Any]:
    return {
        "Model": model,
        "Layer": model,
        "BatchNormalization": model.normalization,
        "CompileLoss": private.compiled_losses(model),
        "MeanMetricWrapper": next(each for each in private.metrics_of(model) if each.name == "error"),
        "Optimizer": model.optimizer,
        "ModelCheckpoint": keras.callbacks.ModelCheckpoint("proof.keras", save_freq=2),
        "ArrayDataAdapter": private.ArrayDataAdapter(_X[:, 0], batch_size=2, shuffle=True),
        "tensor": keras.layers.Masking(name="masking", dtype=keras.config.floatx())(_tensor(_X)),
    }


def _meanings(model: Any, logs: Any, samples: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What must hold of the accessors of `private` that a step does not show, by what they are about."""
    own = {"own": 1.0}
    adapter, checkpoint = samples["ArrayDataAdapter"], samples["ModelCheckpoint"]
    return {
        "the layers of a model": lambda: (
            private.every_layer(model)[0] is model
            and model.normalization in private.every_layer(model, include_self=False)
            and model not in private.every_layer(model, include_self=False)
        ),
        "the results of a step": lambda: (
            private.results(model, own) is own and private.results(model, logs).keys() == logs.keys() and "loss" in logs
        ),
        "the order of results": lambda: private.in_order(model, own | {"loss": 2.0})[0] == 2.0,
        "the epoch to begin with": lambda: private.initial_epoch(model) is None,
        "a metric's arguments": lambda: private.options_of(samples["MeanMetricWrapper"]) == {"factor": 2.0},
        "an optimizer's variables": lambda: (
            [id(each) for each in private.variables_of(model.optimizer)] == [id(model.kernel), id(model.bias)]
        ),
        "a mask": lambda: (np.array(private.mask_of(samples["tensor"])) == (_X[..., 0] != 0)).all(),
        "the steps after which a checkpoint is saved": lambda: (
            private.saves_on_batches(checkpoint)
            and [private.would_save(checkpoint, batch) for batch in (0, 2)] == [False, True]
        ),
        "arrays": lambda: (
            private.rows_of(adapter) == 4
            and private.is_shuffled(adapter) is True
            and (np.array(keras.tree.flatten(private.arrays_of(adapter))[0]) == _X[:, 0]).all()
        ),
        "class weights": lambda: (
            list(np.array(private.class_weight_to_sample_weights(np.array([0, 1, 1]), {0: 1.0, 1: 2.0}))) == [1, 2, 2]
        ),
        "a split of the data": lambda: [len(part[0]) for part in private.train_validation_split((_X,), 0.25)] == [3, 1],
    }


class _Ranks:
    """Two ranks of this process, who meet in every sum."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._barrier = threading.Barrier(2, timeout=_TIMEOUT)
        self._parts: list[Any] = [None, None]

    def sum(self, part: Any) -> Any:
        self._parts[self._here.rank] = part
        self._barrier.wait()
        total = self._parts[0] + self._parts[1]
        self._barrier.wait()
        return total

    @contextlib.contextmanager
    def exchanging(self) -> Iterator[None]:
        """Meanwhile what these threads sum over ranks, they sum over each other; other threads are not affected."""
        sums: dict[str, Callable[..., Any]] = {
            "allreduce": lambda _, grads, *rest: [self.sum(ops.convert_to_tensor(each)) for each in grads],
            "sum_over_ranks": lambda owner, name, part: self.sum(part),
            "differentiable_sum": lambda owner, name, part: self.sum(part),
        }
        with contextlib.ExitStack() as stack:
            for name, ours in sums.items():
                stack.enter_context(hooks.hooking(backend, name, functools.partial(self._instead, ours)))
            # The reduction of Keras's losses is known: they need no trial, which ranks would compare.
            ours = lambda evaluate: {}  # noqa: E731
            stack.enter_context(hooks.hooking(reduction, "try_out", functools.partial(self._instead, ours)))
            yield

    def _instead(self, ours: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            return (ours if hasattr(self._here, "rank") else original)(*args)

        return call

    def run(self, rank: int) -> _Numbers:
        """What a rank's step gives."""
        self._here.rank = rank
        try:
            with keras.device("cpu:0"):
                return self._run(_ROWS[rank])
        except BaseException:
            self._barrier.abort()  # the other one must not wait
            raise
        finally:
            del self._here.rank

    def _run(self, rows: slice) -> _Numbers:
        numbers = ops.convert_to_tensor(np.array([rows.stop - rows.start, 4, 0], "int64"))
        batch, model = MicroBatch(_data(rows), numbers), _model()
        install.install(model)
        model.train_step(batch)
        found = _Numbers(_arrays(model.trainable_variables), _arrays(model.metrics_variables), [], [])
        model.tnt_reduction = "sum"  # then regularizers are weighted by themselves
        with running(Step(model, batch)):
            return found._replace(losses=_arrays(model.losses), normalized=_normalized(model, batch.data[0]))
