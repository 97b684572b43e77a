"""The operations that a tf.data.Dataset consists of, read from its Python objects.

These names are private to TensorFlow and only hints here: if one is missing, batches are cut after all maps. (The
serialized graph of a dataset is public, but writing it takes seconds for 100 MB of data in memory.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from ..position import Order

BATCHES = ("Batch", "ParallelBatch", "PaddedBatch")
# Pass elements on unchanged, possibly not all of them or in another order.
_SELECTING = ("Prefetch", "Options", "Repeat", "Take", "Skip", "Shuffle", "Cache", "Shard", "Filter")


def inputs(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    return list(dataset._inputs()) if hasattr(dataset, "_inputs") else []


def every(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    yield dataset
    for each in inputs(dataset):
        yield from every(each)


def before(dataset: tf.data.Dataset, kinds: Sequence[str]) -> tf.data.Dataset:
    """The dataset before the last operations of these kinds."""
    while kind(dataset) in kinds and len(inputs(dataset)) == 1:
        (dataset,) = inputs(dataset)
    return dataset


def kind(dataset: tf.data.Dataset) -> str:
    """The operation of a dataset, for example "Batch" or "ParallelMap"."""
    return type(dataset).__name__.strip("_").removesuffix("V1").removesuffix("V2").removesuffix("Dataset")


def nodes(dataset: tf.data.Dataset) -> Iterator[Any]:
    """The graph nodes of a dataset's functions and of the functions that they call."""
    for wrapper in dataset._functions() if hasattr(dataset, "_functions") else []:
        yield from nodes_of(wrapper.function.graph.as_graph_def())


def nodes_of(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for each in graph.library.function:
        yield from each.node_def


def cache_file(dataset: tf.data.Dataset) -> str:
    """The file of a cache, empty for other operations."""
    name = getattr(dataset, "_filename", None)
    return "" if name is None or kind(dataset) != "Cache" else name.numpy().decode()


def may_be_unordered(dataset: tf.data.Dataset) -> bool:
    """Whether the user may have set deterministic=False, which an interleave does not show."""
    stated = getattr(dataset, "_deterministic", "" if kind(dataset) == "ParallelInterleave" else "true")
    return stated in ("", "false") or any(each.attr["deterministic"].s == b"false" for each in nodes(dataset))


def nests_cache(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset's functions create datasets with caches."""
    return any(each.op.startswith("CacheDataset") for each in nodes(dataset))


def draws_at_once(dataset: tf.data.Dataset) -> bool:
    """Whether it draws random numbers in parallel, so that their assignment to elements is not deterministic."""
    return kind(dataset) in ("ParallelMap", "ParallelInterleave") and any(map(_draws, nodes(dataset)))


def _draws(node: Any) -> bool:
    # Stateful random operations have two seeds; generators, and those of Keras layers, keep their state in a variable.
    return "seed2" in node.attr or node.op.startswith(("Rng", "Assign"))


def has_batches(dataset: tf.data.Dataset) -> bool:
    """Whether the elements come from an operation that batches; of zipped datasets, all must."""
    while len(inputs(dataset)) == 1 and kind(dataset) not in ("Unbatch", "FlatMap", "Interleave", "ParallelInterleave"):
        if kind(dataset) in BATCHES:
            return True
        (dataset,) = inputs(dataset)
    return kind(dataset) == "Zip" and all(map(has_batches, inputs(dataset)))


def ends_in_batches(dataset: tf.data.Dataset) -> bool:
    """Whether every component is the unchanged output of `batch`; zipped datasets may each have their own."""
    dataset = before(dataset, _SELECTING)
    zipped = inputs(dataset) if kind(dataset) == "Zip" else []
    return kind(dataset) in BATCHES or (bool(zipped) and all(map(ends_in_batches, zipped)))


def number(dataset: tf.data.Dataset, name: str) -> int | None:
    """A private integer attribute of a dataset, None if this version of TensorFlow lacks it."""
    value = getattr(dataset, name, None)
    return None if value is None else int(value)


def function(dataset: tf.data.Dataset) -> Any:
    """The traced function of a map, None for other operations."""
    wrapper = getattr(dataset, "_map_func", None)
    return getattr(wrapper, "function", None) if kind(dataset) in ("Map", "ParallelMap") else None


# The ends of the names of datasets whose iterator begins those of its inputs while it is read.
_LATE = ("Repeat", "Concatenate", "FlatMap", "Group", "Choose", "Interleave")


def order_of(dataset: tf.data.Dataset) -> Order:
    """What the order of its elements depends on. Where a name is missing, nothing is refused."""
    shuffles = [_seeds_of(each) for each in every(dataset) if kind(each) == "Shuffle"]
    seeds = tuple(seed for each in shuffles if each is not None for seed in each)
    return Order(_why_not_repeated(dataset), _reads_earlier(dataset), seeds)


def _why_not_repeated(dataset: tf.data.Dataset) -> str:
    for each in every(dataset):
        if kind(each) == "Shuffle" and _seeds_of(each) == (0, 0):
            return "a shuffle has no seed; pass one, or call keras.utils.set_random_seed before the dataset is made"
        if any(node.op.startswith(("Rng", "Assign")) for node in nodes(each)):
            return (
                "a map draws from a generator, or is a layer that does, whose state a snapshot does not hold; use "
                "tf.random.stateless_… with a seed made from the element, or Keras's random layers inside the model"
            )
    return ""


def _reads_earlier(dataset: tf.data.Dataset) -> bool:
    return any(
        kind(each).endswith(_LATE) and any(kind(below) == "Shuffle" for below in every(each)) for each in every(dataset)
    )


def _seeds_of(shuffle: tf.data.Dataset) -> tuple[int, int] | None:
    seeds = [number(shuffle, name) for name in ("_seed", "_seed2")]
    return None if None in seeds else (seeds[0] or 0, seeds[1] or 0)
