"""State that every rank has a copy of, set to the master's: variables, and the oracle of a KerasTuner.

Checks after every epoch, and within it, that ranks have read the same data and still hold the same weights.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from .. import _exchange
from .._backend import backend
from .._exchange import described, name_of
from .._job import runtime, timeline
from .._job.errors import MismatchError
from . import hooks, model_state, private

# Bytes per broadcast, about, which limits the memory for copies.
_CHUNK = 64 * 2**20
_SEED_STEP = 0x9E3779B1

CURE = (
    "change the model, its learning rate and its optimizers in the same way on every rank; a train_step that moves "
    "weights by local gradients and back (SAM) must save and assign the old values: adding and subtracting rounds "
    "differently on each rank"
)


def _optimizer_variables(model: Any) -> list[Any]:
    return [variable for each in private.optimizers(model) if each.built for variable in each.variables]


def trainable_outside(model: Any) -> list[Any]:
    """The framework's own trainable variables in attributes of layers."""
    return [each for each in backend.variables_outside(private.every_layer(model)) if each.trainable]


def normalizations(model: Any) -> list[Any]:
    """The BatchNormalization layers of a model."""
    return [layer for layer in private.every_layer(model) if isinstance(layer, keras.layers.BatchNormalization)]


def variables(model: Any, optimizers: bool = True) -> list[Any]:
    """All variables that must start equal, each once: the model's and, with `optimizers`, those of its optimizers."""
    every = [*model.variables, *trainable_outside(model), *(_optimizer_variables(model) if optimizers else ())]
    return list({id(v): v for v in every}.values())


@timeline.part("compare variables")
def check_alike(model: Any, optimizers: bool = True) -> None:
    """Raises MismatchError on all ranks if their variables differ in number, name, shape or dtype. Collective."""
    trainable = {id(v) for v in model.trainable_variables}
    lines = [described(v) + ("" if id(v) in trainable else " not trainable") for v in model.variables]
    _exchange.check_equal("the model's variables", lines, "build the same model on every rank")
    if optimizers:
        lines = [described(v) for v in _optimizer_variables(model)]
        _exchange.check_equal("the optimizer's variables", lines, "compile with the same optimizer on every rank")


def differing(every: Sequence[Any], context: Any = None) -> list[Any]:
    """The variables whose bits differ between ranks. Their number and shapes must be equal. Collective.

    The context is the job's by default, here and below.
    """
    if not every:
        return []
    everyone = (context or runtime.context()).allgather(_exchange.checksums(every), "checksums of variables")
    return list(itertools.compress(every, (everyone != everyone[0]).any(axis=0)))


def broadcast(every: Iterable[Any], root: int = 0, context: Any = None) -> None:
    """Sets variables to the root's values; random generators get a different stream on each rank. Collective.

    Only variables that differ, and the states of generators, are sent.
    """
    every = list(every)
    seeds = [v for v in every if private.is_seed(v)]
    send([*differing([v for v in every if not private.is_seed(v)], context), *seeds], root, context)


def send(every: Iterable[Any], root: int = 0, context: Any = None) -> None:
    """As `broadcast`, for variables that are known to differ. Collective."""
    every = list(every)
    begins = itertools.accumulate((math.prod(v.shape) * 8 for v in every), initial=0)
    for _, pairs in itertools.groupby(zip(begins, every, strict=False), lambda pair: pair[0] // _CHUNK):
        group = [variable for _, variable in pairs]
        context = context or runtime.context()
        distance = (context.rank - root) % context.size
        values = [np.ascontiguousarray(np.asarray(v)) for v in group]
        raw = [value.reshape(-1).view(np.uint8) for value in values]  # sent as bytes, whatever the dtype
        received = context.broadcast(np.concatenate(raw), root, "variables")
        if not distance:
            continue
        for variable, value, part in zip(group, values, _exchange.unflatten(received, raw), strict=True):
            new = part.copy().view(value.dtype).reshape(tuple(variable.shape))
            variable.assign(fold_in(new, distance) if private.is_seed(variable) else new)


def assign(every: Iterable[Any], values: Iterable[NDArray[Any]]) -> None:
    """Sets variables to values, which are converted to their types."""
    for variable, value in zip(every, values, strict=True):
        variable.assign(value.astype(keras.backend.standardize_dtype(variable.dtype)))


def fold_in(state: NDArray[Any], rank: int) -> NDArray[Any]:
    """The state of a generator for a rank: the master's for rank 0, a different stream for each other rank."""
    folded = state.copy()
    folded[0] = (int(folded[0]) + rank * _SEED_STEP) % 2**31 if rank else folded[0]
    return folded


@timeline.part("compare data")
def same_data(model: Any) -> None:
    """Raises MismatchError on all ranks if they have read different global batches. Collective."""
    local = np.asarray(model_state.of(model).data_fingerprint).reshape(1)
    model_state.of(model).data_fingerprint.assign(0)
    everyone = runtime.context().allgather(local, "fingerprints of the data").ravel()
    others = np.flatnonzero(everyone != everyone[0])
    if others.size:
        raise MismatchError(
            f"rank {others[0]} read other data than rank 0: each rank takes its rows of the same global batches; "
            "use the same seed on all ranks for every shuffle, split and random generator, and the same files in the "
            "same order; if threads or processes draw random numbers (workers=…, num_parallel_calls=…), the numbers of "
            "an element are not deterministic: draw them with a seed made from its index"
        )


def nan_labels(model: Any, loss: Any) -> None:
    """Raises ValueError on all ranks if the loss is NaN because labels are. Collective if the loss is NaN."""
    if model.stop_training or not np.isnan(loss).any():
        return
    local = np.asarray(model_state.of(model).nan_labels).reshape(1)
    count = int(runtime.context().allreduce(local, "labels that are NaN")[0])
    if count:
        raise ValueError(
            f"the loss is nan, and {count} of the labels trained on are: remove these rows, or compile with a loss "
            "that masks them; with keras.callbacks.TerminateOnNaN() training stops without an error"
        )


@timeline.part("compare weights")
def same_weights(model: Any) -> None:
    """Raises MismatchError on all ranks if the trainable weights of the ranks have drifted apart. Collective.

    Compares one checksum, and that of each weight only if it differs.
    """
    backend.sync(model)
    variables = [*model.trainable_variables, *trainable_outside(model)]
    local = np.array([_exchange.checksum(variables)], np.int64)
    everyone = runtime.context().allgather(local, "checksum of the weights").ravel()
    if (everyone != everyone[0]).any():
        checksums = _exchange.checksums(variables).view(np.uint64)
        lines = [f"{name_of(v)!r} with the checksum {each:016x}" for v, each in zip(variables, checksums, strict=True)]
        _exchange.check_equal("trained weights", lines, CURE)


def before_step(model: Any) -> None:
    """Compares the weights of the ranks once every TNT_WEIGHT_CHECK_STEPS steps. Collective then."""
    found = model_state.of(model)
    if 0 < found.weight_check_interval <= found.unchecked_steps:
        same_weights(model)
        found.unchecked_steps = 0
    found.unchecked_steps += 1
    found.completed += 1
    found.stepped_since_sync = True


class CompareWeights(keras.callbacks.Callback):
    """Compares weights before steps. Not after them: Keras may run on_train_batch_end in another thread."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._of = weakref.ref(model)  # on JAX, Keras's property `model` assigns all variables

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        model_state.of(self.model).try_again()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        before_step(self._of())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        found = model_state.of(self.model)
        found.completed = max(1, found.completed)


def hook_tuners(keras_tuner: Any) -> None:
    """Hooks tuners: the master creates or empties their folder, and all ranks start from its state."""
    hooks.hook(keras_tuner.engine.base_tuner.BaseTuner, "__init__", _made_together)


def _made_together(original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    def init(tuner: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(tuner, *args, **kwargs)
        if runtime.is_master_rank():
            original(*given.args, **given.kwargs)
        local = json.dumps(tuner.oracle.get_state()) if runtime.is_master_rank() else ""
        state = json.loads(_exchange.gather_bytes(local.encode())[runtime.get_master_rank()])
        if not runtime.is_master_rank():
            given.arguments["overwrite"] = False  # the master has emptied it
            original(*given.args, **given.kwargs)
            tuner.oracle.set_state(state)
            private.draw_alike(tuner.oracle)
        folders = [each.decode() for each in _exchange.gather_bytes(os.path.abspath(tuner.project_dir).encode())]
        for rank, folder in enumerate(folders):
            if folder != folders[0]:
                raise MismatchError(
                    f"the tuner of rank {rank} uses the folder {folder!r}, that of rank 0 {folders[0]!r}: pass the "
                    "same directory and project_name on all ranks, not made from a tempfile, time or process number"
                )

    return init
