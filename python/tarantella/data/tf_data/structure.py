"""The operations behind a tf.data.Dataset, as its Python objects show them.

TensorFlow keeps these names to itself. They are hints here: where one is missing, batches are cut as they come.
(Its graph of a dataset is public, but writing it takes seconds for 100 MB of data in memory.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

BATCHES = ("Batch", "ParallelBatch", "PaddedBatch")
# Hand on elements as they are, maybe not all of them, or in another order.
_SELECTING = ("Prefetch", "Options", "Repeat", "Take", "Skip", "Shuffle", "Cache", "Shard", "Filter")


def inputs(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """The datasets that a dataset is made of, where TensorFlow says so."""
    return list(dataset._inputs()) if hasattr(dataset, "_inputs") else []


def every(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """The dataset and all behind it."""
    yield dataset
    for each in inputs(dataset):
        yield from every(each)


def kind(dataset: tf.data.Dataset) -> str:
    """The operation that made it, for example "Batch" or "ParallelMap"."""
    return type(dataset).__name__.strip("_").removesuffix("V1").removesuffix("V2").removesuffix("Dataset")


def nodes(dataset: tf.data.Dataset) -> Iterator[Any]:
    """The operations within its functions, also of the functions that those call, as TensorFlow writes them."""
    for wrapper in dataset._functions() if hasattr(dataset, "_functions") else []:
        graph = wrapper.function.graph.as_graph_def()
        yield from graph.node
        for each in graph.library.function:
            yield from each.node_def


def cache_file(dataset: tf.data.Dataset) -> str:
    """The file of a cache, empty for all else."""
    name = getattr(dataset, "_filename", None)
    return "" if name is None or kind(dataset) != "Cache" else name.numpy().decode()


def may_be_unordered(dataset: tf.data.Dataset) -> bool:
    """Whether the user may have given its order away with deterministic=False, of which an interleave says nothing."""
    stated = getattr(dataset, "_deterministic", "" if kind(dataset) == "ParallelInterleave" else "true")
    return stated in ("", "false") or any(each.attr["deterministic"].s == b"false" for each in nodes(dataset))


def nests_cache(dataset: tf.data.Dataset) -> bool:
    """Whether its functions make datasets with a cache of their own."""
    return any(each.op.startswith("CacheDataset") for each in nodes(dataset))


def draws_at_once(dataset: tf.data.Dataset) -> bool:
    """Whether it draws random numbers for several elements at the same time: which get which is chance."""
    return kind(dataset) in ("ParallelMap", "ParallelInterleave") and any(map(_draws, nodes(dataset)))


def _draws(node: Any) -> bool:
    # Operations with a state of their own have two seeds; a generator, or a Keras layer's, keeps it in a variable.
    return "seed2" in node.attr or node.op.startswith(("Rng", "Assign"))


def has_batches(dataset: tf.data.Dataset) -> bool:
    """Whether its elements come from an operation that makes batches, each part of them where several are zipped."""
    while len(inputs(dataset)) == 1 and kind(dataset) not in ("Unbatch", "FlatMap", "Interleave", "ParallelInterleave"):
        if kind(dataset) in BATCHES:
            return True
        (dataset,) = inputs(dataset)
    return kind(dataset) == "Zip" and all(map(has_batches, inputs(dataset)))


def ends_in_batches(dataset: tf.data.Dataset) -> bool:
    """Whether every part of its elements is rows as `batch` has put them together, where zipped each part its own."""
    while kind(dataset) in _SELECTING and len(inputs(dataset)) == 1:
        (dataset,) = inputs(dataset)
    zipped = inputs(dataset) if kind(dataset) == "Zip" else []
    return kind(dataset) in BATCHES or (bool(zipped) and all(map(ends_in_batches, zipped)))


def number(dataset: tf.data.Dataset, name: str) -> int | None:
    """One of its own numbers, if TensorFlow still calls it so."""
    value = getattr(dataset, name, None)
    return None if value is None else int(value)


def function(dataset: tf.data.Dataset) -> Any:
    """The traced function of a map, None for all else."""
    wrapper = getattr(dataset, "_map_func", None)
    return getattr(wrapper, "function", None) if kind(dataset) in ("Map", "ParallelMap") else None
