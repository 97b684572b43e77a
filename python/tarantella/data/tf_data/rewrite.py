"""Adds raw operations to a tf.data.Dataset; reads and rewrites its operations in their serialized graph.

`cached_map` traces a function once for each type of elements, not once for each dataset: every call of fit makes new
datasets, and tracing would take longer than a short call.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..._job import log
from . import structure

_IGNORE_STATE = 1  # of DatasetToGraphV2: allows stateful operations in the graph


def read(dataset: tf.data.Dataset) -> Any:
    """The GraphDef of a dataset, or None if TensorFlow cannot write one (more than 2 GB of data in memory)."""
    variant = tf.data.experimental.to_variant(dataset)
    try:
        text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=_IGNORE_STATE)
    except tf.errors.OpError:
        return None
    return tf.compat.v1.GraphDef.FromString(text.numpy())


def write(graph: Any, element_spec: Any) -> tf.data.Dataset:
    for node in structure.nodes_of(graph):
        node.device = ""  # read in another syntax than written
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    return tf.data.experimental.from_variant(variant, element_spec)


def operated(
    dataset: tf.data.Dataset,
    operation: Callable[..., Any],
    spec: Any,
    components: Sequence[Any] | None = None,
    **arguments: Any,
) -> tf.data.Dataset:
    """The dataset of type `spec` that a raw operation makes; `components` have the dtypes and shapes of its tensors."""
    components = tf.nest.flatten(spec) if components is None else components
    variant = operation(
        input_dataset=tf.data.experimental.to_variant(dataset),
        output_types=[each.dtype for each in components],
        output_shapes=[each.shape for each in components],
        **arguments,
    )
    return tf.data.experimental.from_variant(variant, spec)


def made_safe(dataset: tf.data.Dataset, rank: int) -> tf.data.Dataset:
    """The dataset with the same order and random numbers on all ranks, and with separate cache files for each rank."""
    safe, whole = dataset, list(structure.every(dataset))
    if any(map(structure.draws_at_once, whole)):
        log.logger.info(
            "a parallel map or interleave draws random numbers, so it runs one element after the other: in parallel, "
            "their assignment to elements is not deterministic and differs between ranks; faster are "
            "tf.random.stateless_… with a seed made from the row, or Keras's random layers inside the model"
        )
        safe = _drawing_in_order(safe)
    if any(structure.cache_file(d) or structure.nests_cache(d) or structure.may_be_unordered(d) for d in whole):
        graph = read(safe)
        if graph is None:
            safe = _drawing_in_order(safe)
        else:
            _force_order(graph)
            _own_cache_files(graph, rank)
            safe = write(graph, dataset.element_spec)
    if safe is not dataset:
        safe._made_from = dataset  # keeps its Python functions alive
    return safe


def _drawing_in_order(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Rewrites a dataset as TensorFlow does for `enable_op_determinism`: operations that draw run first, in sequence.

    This also undoes deterministic=False.
    """
    return operated(
        dataset,
        tf.raw_ops.OptimizeDatasetV2,
        dataset.element_spec,
        optimizations_enabled=["make_deterministic"],
        optimizations_disabled=[],
        optimizations_default=[],
    )


def _force_order(graph: Any) -> None:
    nodes = [node for node in structure.nodes_of(graph) if "deterministic" in node.attr]
    nodes = [node for node in nodes if node.attr["deterministic"].s == b"false"]
    for node in nodes:
        node.attr["deterministic"].s = b"true"
    if nodes:
        log.logger.info("deterministic=False in the dataset is ignored: all ranks must see the same order")


def _own_cache_files(graph: Any, rank: int) -> None:
    found = False
    for scope in (graph.node, *(function.node_def for function in graph.library.function)):
        names = {node.name: node for node in scope}
        for cache in [node for node in scope if node.op in ("CacheDataset", "CacheDatasetV2")]:
            file = names.get(cache.input[1].partition(":")[0])
            value = file.attr["value"].tensor.string_val if file is not None and file.op == "Const" else [b""]
            if value and value[0]:
                value[0] += f".rank{rank}".encode()
                found = True
    if found:
        log.logger.info("every rank writes its own cache file: the name passed to dataset.cache, followed by .rankN")


class _Traced(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    element_spec: Any
    graph: Any  # a ConcreteFunction
    result_spec: Any


_known: deque[_Traced] = deque(maxlen=32)


def cached_map(
    dataset: tf.data.Dataset,
    function: Callable[..., Any],
    *arguments: Any,
    parallel: bool = False,
    kept_by: Any = None,
) -> tf.data.Dataset:
    """`dataset.map` with `function(*arguments, *element)`, whose trace must depend on `arguments` and types alone.

    `arguments` are compared as structures whose leaves have an `==`. With `parallel`, several elements are mapped at a
    time, in order. `kept_by` is the object that the trace lives as long as, for one that holds data of the user's.
    AutoGraph does not convert the function: that takes time and leaves files.
    """
    spec = dataset.element_spec
    known = _known if kept_by is None else vars(kept_by).setdefault("_tarantella_mapped", deque(maxlen=4))
    for each in reversed(tuple(known)):
        if each.function is function and _same(each.arguments, arguments) and _same(each.element_spec, spec):
            return _with_traced(dataset, each, parallel)
    options = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True} if parallel else {}
    made = dataset.map(tf.autograph.experimental.do_not_convert(functools.partial(function, *arguments)), **options)
    graph = structure.function(made)
    if graph is not None:
        known.append(_Traced(function, arguments, spec, graph, made.element_spec))
    return made


def _same(one: Any, other: Any) -> bool:
    """Whether two structures are equal, with the types and orders of their dicts, which TensorFlow takes for equal."""
    try:
        tf.nest.assert_same_structure(one, other)
    except (TypeError, ValueError):
        return False
    shapes = [repr(tf.nest.map_structure(lambda _: 0, each)) for each in (one, other)]
    return shapes[0] == shapes[1] and bool(tf.nest.flatten(one) == tf.nest.flatten(other))


def _with_traced(dataset: tf.data.Dataset, traced: _Traced, parallel: bool) -> tf.data.Dataset:
    arguments = {"other_arguments": traced.graph.captured_inputs, "f": traced.graph, "preserve_cardinality": True}
    if parallel:
        arguments |= {"num_parallel_calls": tf.constant(tf.data.AUTOTUNE, tf.int64), "deterministic": "true"}
    operation = tf.raw_ops.ParallelMapDatasetV2 if parallel else tf.raw_ops.MapDataset
    made = operated(dataset, operation, traced.result_spec, traced.graph.outputs, **arguments)
    made._made_from = (dataset, traced)  # keeps their Python functions alive
    return made


def unbatched_rows(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """`dataset.unbatch()` for dense tensors, for which TensorFlow would trace a function that changes nothing."""
    spec = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape[1:], each.dtype), dataset.element_spec)
    made = operated(dataset, tf.raw_ops.UnbatchDataset, spec)
    made._made_from = dataset
    return made
