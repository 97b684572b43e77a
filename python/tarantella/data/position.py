"""How far a training has read its data, and data that goes on from there in another process."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

import numpy as np

from ..keras import private
from .adapter import ShardedAdapter


class Order(NamedTuple):
    """What the order of the batches of an input depends on."""

    why_not_repeated: str = ""  # the reason why another process could not read the same, with its cure; empty if it can
    reads_earlier: bool = False  # depends on how far earlier iterators were read, not only on their number
    seeds: tuple[int, ...] = ()  # of shuffles


# States of the generators of Python and NumPy, as JSON has them.
Generators = list[Any]


def generators() -> Generators:
    kind, key, *rest = np.random.get_state(legacy=True)
    return [random.getstate(), [kind, np.asarray(key).tolist(), *rest]]


def set_generators(states: Generators, read_again_from: Generators | None = None) -> None:
    """Sets what `generators` has returned, in this process or another.

    With `read_again_from`, the states with which the current pass began, batches of it were read again since. A
    generator that is no longer in that state is left alone: the data draws from it, in a thread that reads ahead.
    """
    (version, internal, gauss), (kind, key, *rest) = states
    now = json.loads(json.dumps(generators()))
    began = now if read_again_from is None else json.loads(json.dumps(read_again_from))
    if now[0] == began[0]:
        random.setstate((version, tuple(internal), gauss))
    if now[1] == began[1]:
        np.random.set_state((kind, np.array(key, np.uint32), *rest))


def why_not_repeated(dataset: Any) -> str:
    """Why another process could not read the same from a PyDataset, with a cure; empty if it can, and for None."""
    kinds = (np.random.Generator, np.random.RandomState, random.Random)
    own = [name for name, value in vars(dataset).items() if isinstance(value, kinds)] if dataset is not None else []
    if own:
        return (
            f"the PyDataset has a generator of its own ({own[0]}), whose state a snapshot does not hold; draw from "
            "numpy.random, or make the generator from the index in __getitem__"
        )
    if hasattr(dataset, "total_batches_seen"):
        return "ImageDataGenerator counts the batches that it has given; use a tf.data.Dataset, or layers that augment"
    return ""


class ResumableBatches(ShardedAdapter):
    """Micro batches that count how far they are read, and that can begin where those of another process were.

    Each iterator of a pipeline with a shuffle has another order, so as many are made as the other process had begun.
    Earlier ones are read only if the order of later ones depends on it.
    """

    def __init__(self, batches: ShardedAdapter, after: dict[str, Any] | None, order: Order) -> None:
        """`after`: a `position`, from which to go on."""
        seek = batches._seek if batches.is_seekable else None
        super().__init__(batches._source, batches._batches, batches.num_batches, seek)
        self._resume_from, self._reads_earlier = after, order.reads_earlier
        self._taken: list[int] = []  # batches, of each iterator
        self._ended: list[Generators] = []  # the generators at each end of an epoch of which the source was told
        self._begun_with: Generators = []
        self._only: Any = None
        self._has_one_pass = isinstance(self._source, private.GeneratorDataAdapter)  # over all epochs

    def position(self) -> dict[str, Any]:
        """How far they are read, as JSON has it."""
        return {"taken": [*self._taken], "ended": [*self._ended], "generators": self._begun_with}

    @property
    def is_at_end(self) -> bool:
        """Whether all batches of the current iterator are taken, if their number is known."""
        return self.num_batches is not None and self._taken[-1] >= self.num_batches

    def take(self, batches: int) -> None:
        self._taken[-1] += batches

    def make_iterators(self, taken: list[int]) -> None:
        """Makes the iterators of a call that is not run again: the order of later ones may depend on their number."""
        for each in taken:
            earlier = iter(self._batches)
            for _ in range(each if self._reads_earlier else 0):
                next(earlier)

    def get_tf_dataset(self) -> Any:
        return self  # Keras calls iter() on it only

    def __iter__(self) -> Any:
        if self._only is not None:
            return self._only
        after, self._resume_from = self._resume_from, None
        self._taken = after["taken"] if after else [*self._taken, 0]
        if after:
            self.make_iterators(self._taken[:-1])
        iterator = iter(self._seek(self._taken[-1]) if after and self._taken[-1] else self._batches)
        if self._has_one_pass:
            self._only = iterator
        return iterator

    def on_epoch_begin(self) -> None:
        if self._resume_from:
            for states in self._resume_from["ended"][len(self._ended) :]:
                if states:
                    set_generators(states)
                self.on_epoch_end()
            set_generators(self._resume_from["generators"])
        if not (self._has_one_pass and self._begun_with):
            self._begun_with = generators()
        super().on_epoch_begin()

    def on_epoch_end(self) -> None:
        draws = isinstance(self._source, private.PyDatasetAdapter)  # its on_epoch_end may shuffle
        self._ended.append(generators() if draws else [])
        super().on_epoch_end()
