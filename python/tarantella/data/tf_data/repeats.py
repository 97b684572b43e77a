"""Whether the elements of a tf.data.Dataset come in the same order in another process, and what their order depends on.

As in `structure`, the names are private to TensorFlow and only hints: where one is missing, nothing is refused.
"""

from __future__ import annotations

import tensorflow as tf

from ..position import Order
from . import structure

# The ends of the names of datasets whose iterator begins those of its inputs while it is read.
_LATE = ("Repeat", "Concatenate", "FlatMap", "Group", "Choose", "Interleave")


def order_of(dataset: tf.data.Dataset) -> Order:
    """What the order of its elements depends on."""
    shuffles = [_seeds_of(each) for each in structure.every(dataset) if structure.kind(each) == "Shuffle"]
    seeds = tuple(seed for each in shuffles if each is not None for seed in each)
    return Order(_why_not_repeated(dataset), _reads_earlier(dataset), seeds)


def _why_not_repeated(dataset: tf.data.Dataset) -> str:
    for each in structure.every(dataset):
        if structure.kind(each) == "Shuffle" and _seeds_of(each) == (0, 0):
            return "a shuffle has no seed; pass one, or call keras.utils.set_random_seed before the dataset is made"
        if any(node.op.startswith(("Rng", "Assign")) for node in structure.nodes(each)):
            return (
                "a map draws from a generator, or is a layer that does, whose state a snapshot does not hold; use "
                "tf.random.stateless_… with a seed made from the element, or Keras's random layers inside the model"
            )
    return ""


def _reads_earlier(dataset: tf.data.Dataset) -> bool:
    return any(
        structure.kind(each).endswith(_LATE)
        and any(structure.kind(below) == "Shuffle" for below in structure.every(each))
        for each in structure.every(dataset)
    )


def _seeds_of(shuffle: tf.data.Dataset) -> tuple[int, int] | None:
    seeds = [structure.number(shuffle, name) for name in ("_seed", "_seed2")]
    return None if None in seeds else (seeds[0] or 0, seeds[1] or 0)
