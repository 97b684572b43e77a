"""Maps over datasets that trace a function once for each type of elements, not once for each dataset.

Every call of fit makes new datasets; without this, tracing would take longer than a short call.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from . import rewrite, structure


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
    made = rewrite.operated(dataset, operation, traced.result_spec, traced.graph.outputs, **arguments)
    made._made_from = (dataset, traced)  # keeps their Python functions alive
    return made


def unbatched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """`dataset.unbatch()` for dense tensors, for which TensorFlow would trace a function that changes nothing."""
    spec = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape[1:], each.dtype), dataset.element_spec)
    made = rewrite.operated(dataset, tf.raw_ops.UnbatchDataset, spec)
    made._made_from = dataset
    return made
