"""Makes this rank's micro batches of the data of a call. All ranks pass the same data, in the same order.

Keras's adapter tells the kind of input. All inputs that yield global batches are split in the same way.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from keras import tree

from .. import _exchange
from .._job import log, runtime, timeline
from ..keras import private
from ..keras.private import ArrayDataAdapter, TFDatasetAdapter
from . import adapter as adapters
from . import host_arrays, position, tf_data
from .adapter import ShardedAdapter
from .position import Order


@dataclass(frozen=True, eq=False)
class DataArguments:
    """One input of fit, evaluate or predict as the user gave it."""

    what: str  # "training data", for messages
    x: Any
    y: Any = None
    sample_weight: Any = None
    batch_size: int | None = None  # rows of a global batch
    micro_batch_size: int | None = None  # rows of a rank
    distributed: bool = True  # whether the batches are global; False for data of this rank's own, in micro batches
    steps: int | None = None
    shuffle: Any = False
    class_weight: Any = None

    @property
    def is_of_own_files(self) -> bool:
        """Whether each rank reads its own files of it."""
        return tf_data.is_tarantella_dataset(self.x) and bool(self.x.shard == "file")


class DistributedInput:
    """One input of fit, evaluate or predict: checked, and, after `split`, this rank's micro batches."""

    batches: ShardedAdapter

    def __init__(self, given: DataArguments, adapter: Any, distributed: bool, batch_size: int | None) -> None:
        self.given, self._what, self._adapter = given, given.what, adapter
        self.distributed = distributed
        self.batch_size = batch_size  # as the user gave it, or as the micro batch size makes it
        self._has_arrays = isinstance(adapter, ArrayDataAdapter)
        # Python code may draw from the generators of Python and NumPy, so ranks must start from the same states.
        in_pipeline = (ArrayDataAdapter, TFDatasetAdapter) if uses_pipelines() else ()
        self.runs_python = distributed and not isinstance(adapter, in_pipeline)
        self.lines = self._described()  # the properties that all ranks must agree on, a line each

    def _described(self) -> list[str]:
        if not self.distributed:
            return [f"{self._what} of this rank's own"]
        if self._has_arrays:
            lines = _arrays().describe(self._adapter)
        else:
            dataset = self._adapter.get_tf_dataset()
            self._split_plan = tf_data.from_batches.plan(dataset)
            lines = tf_data.from_batches.describe(self._adapter, dataset, self._split_plan)
        return [f"{self._what}: {line}" for line in lines]

    def rows_of_a_batch(self) -> int | None:
        """The rows of a full batch, or of the first batch of a PyDataset; None if only reading the data would tell."""
        if not self.distributed:
            return None
        if self._has_arrays:
            return int(min(self._adapter.batch_size, private.rows_of(self._adapter)))
        if isinstance(self._adapter, TFDatasetAdapter):
            return tf_data.from_batches.batch_size(self._adapter.get_tf_dataset())
        source = getattr(self._adapter, "py_dataset", None)
        leaves = [] if source is None else tree.flatten(source[0])
        return next((int(np.shape(leaf)[0]) for leaf in leaves if np.ndim(leaf)), None)

    def order(self) -> Order:
        """What the order of the batches depends on."""
        if isinstance(self._adapter, TFDatasetAdapter):
            return tf_data.structure.order_of(self._adapter.get_tf_dataset())
        if self._has_arrays and private.is_shuffled(self._adapter) and tf_data.global_seed() is None:
            return Order("arrays are shuffled without a seed; call keras.utils.set_random_seed before fit")
        return Order(position.why_not_repeated(getattr(self._adapter, "py_dataset", None)))

    def keep_whole(self) -> None:
        """Makes the whole batches, for a rank that trains alone."""
        self.batches = ShardedAdapter(self._adapter, self._adapter.get_tf_dataset(), self._adapter.num_batches)

    def split(self, positions: bool = False) -> None:
        """Makes the micro batches of this rank. Collective if the data is not distributed."""
        how = runtime.get_rank(), runtime.get_size(), positions
        if not self.distributed:
            self.batches = tf_data.per_rank.distribute(self._adapter)
        elif self._has_arrays:
            self.batches = _arrays().distribute(self._adapter, *how)
        else:
            if isinstance(self._adapter, TFDatasetAdapter):
                log.logger.info("%s: %s", self._what, tf_data.from_batches.who_maps(self._split_plan))
            self.batches = tf_data.from_batches.distribute(self._adapter, *how, self._split_plan)


def uses_pipelines() -> bool:
    """Whether Keras's trainer iterates over tf.data pipelines."""
    return bool(keras.backend.backend() == "tensorflow")


def _arrays() -> Any:
    """What distributes arrays."""
    return tf_data.from_arrays if uses_pipelines() else host_arrays


def checked_input(given: DataArguments, model: Any) -> DistributedInput:
    """Checks and describes one input. Raises ValueError for invalid data, and if the two batch sizes do not match.

    With `distributed=False` the input belongs to this rank: its batches are micro batches.
    """
    as_given, what, x = given, given.what, given.x
    if x is None:
        raise ValueError(f"{what} is missing: x is None")
    if given.is_of_own_files:
        given = replace(given, x=x.distribute_dataset_across_ranks(), distributed=False)
    are_arrays = adapters.are_arrays((given.x, given.y, given.sample_weight))
    given = with_batch_size(given, model)
    x = given.x
    if tf_data.is_dataset(x):
        reason = tf_data.from_batches.unbatched(x, what, _input_shapes(model))
        if reason:
            raise ValueError(f"{reason}; {what} must be batched by the global batch size: dataset.batch(…)")
    if not (given.distributed or uses_pipelines() or runtime.get_size() == 1):
        raise NotImplementedError(f"{what} must be distributed on Keras's {keras.backend.backend()} backend so far")
    if not given.distributed:
        log.logger.info("%s is not distributed: every rank takes its micro batches from its own", what)
    # Avoids Keras's warning that it does not shuffle such inputs.
    shuffle = given.shuffle if are_arrays or isinstance(x, keras.utils.PyDataset) else False
    options = {"batch_size": given.batch_size, "shuffle": shuffle, "class_weight": given.class_weight}
    if are_arrays:
        adapter = adapters.adapt_arrays(x, given.y, given.sample_weight, steps=given.steps, **options)
    elif not uses_pipelines():
        raise NotImplementedError(f"{what} must be arrays on Keras's {keras.backend.backend()} backend so far")
    else:
        adapter = adapters.adapt(x, given.y, given.sample_weight, **options)
        if given.batch_size is not None:
            log.warn_once(f"batch_size={given.batch_size} is ignored: {what} is batched already")
    return DistributedInput(as_given, adapter, given.distributed, given.batch_size)


def with_batch_size(given: DataArguments, model: Any) -> DataArguments:
    """The input with a plain dataset, and a batch size adapted to the micro batch size if one is given.

    Raises ValueError if batch size and micro batch size do not match.
    """
    if tf_data.is_tarantella_dataset(given.x):
        given = replace(given, x=given.x.dataset)
    if given.micro_batch_size is None:
        return given
    what, x, micro = given.what, given.x, given.micro_batch_size
    ranks = runtime.get_size() if given.distributed else 1
    wanted = micro * ranks
    if adapters.are_arrays(x):
        size = given.batch_size
    elif not tf_data.is_dataset(x):
        raise ValueError(f"a micro batch size needs arrays or a tf.data.Dataset, but {what} is a {type(x).__name__}")
    elif tf_data.from_batches.unbatched(x, what, _input_shapes(model)):
        return replace(given, x=x.batch(wanted))
    else:
        size = tf_data.from_batches.batch_size(x)
    if size not in (None, wanted):
        raise ValueError(
            f"micro batches of {micro} on {ranks} ranks make global batches of {micro} * {ranks} = {wanted} rows, "
            f"but {what} has batches of {size}: change one of them, or leave the micro batch size out"
        )
    return given if tf_data.is_dataset(x) else replace(given, batch_size=wanted)


def _input_shapes(model: Any) -> dict[str, tuple[Any, ...]]:
    try:
        inputs = model.inputs
    except (AttributeError, ValueError):  # not built yet
        return {}
    return {tensor.name: tuple(tensor.shape) for tensor in inputs or []}


def distribute(
    call: str, given: Sequence[DataArguments], model: Any, settings: Sequence[str]
) -> list[DistributedInput]:
    """The inputs of a call, checked and split. Collective.

    If the validation data of a fit are arrays without a batch size, they get that of the training data.
    `settings` is what else must be equal on all ranks, a line each. Raises ValueError for invalid data, and
    MismatchError on all ranks where data or settings differ.
    """
    inputs: list[DistributedInput] = []
    for each in given:
        inputs.append(checked_input(_with_batch_size_of(inputs[0], each) if inputs else each, model))
    check_equal(call, [*(line for each in inputs for line in each.lines), *settings])
    if uses_pipelines():
        broadcast_seed()
    if any(each.runs_python for each in inputs):
        broadcast_generators()
    for part in inputs:
        part.split(positions=call == "predict")
    return inputs


def _with_batch_size_of(training: DistributedInput, given: DataArguments) -> DataArguments:
    has_size = given.batch_size is not None or given.micro_batch_size is not None
    takes_one = not has_size and adapters.are_arrays((given.x, given.y, given.sample_weight))
    return replace(given, batch_size=training.batch_size) if takes_one else given


@timeline.part("agree on data and arguments")
def check_equal(call: str, lines: Sequence[str]) -> None:
    """Raises MismatchError on all ranks where these lines, of a call's data and arguments, differ. Collective."""
    cure = "pass the same to every rank, which takes its own rows; random data needs a seed"
    _exchange.check_equal(f"data or arguments of {call}", lines, cure)


@timeline.part("agree on seeds")
def broadcast_seed() -> None:
    """Gives all ranks the master's global seed where theirs differ: they would shuffle differently."""
    seed = tf_data.global_seed()
    local = np.array([0 if seed is None else seed, seed is not None], np.int64)
    everyone = runtime.context().allgather(local, "seeds")
    if (everyone == everyone[0]).all() and everyone[0][1]:
        return
    chosen = int(everyone[0][0]) if everyone[0][1] else tf_data.DEFAULT_SEED
    log.logger.info("ranks had different seeds; all shuffle with the master's, %d", chosen)
    tf_data.set_global_seed(chosen)


def broadcast_generators() -> None:
    """Gives all ranks the master's states of the generators that input may draw from: Python's, NumPy's, torch's."""
    torch = sys.modules.get("torch")
    local = None if torch is None else torch.get_rng_state().numpy()
    states = _exchange.gather_bytes(pickle.dumps((random.getstate(), np.random.get_state(), local)))
    if states[runtime.get_rank()] != states[0]:
        pythons, numpys, torchs = pickle.loads(states[0])
        random.setstate(pythons)
        np.random.set_state(numpys)
        if torch is not None and torchs is not None:
            torch.set_rng_state(torch.from_numpy(torchs))
