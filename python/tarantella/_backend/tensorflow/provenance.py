"""What gradients, and their indices, are computed from: sums over the ranks, random numbers, this rank's rows."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from .graphs import (
    FunctionCall,
    TensorInCall,
    body,
    functions,
    graphs_within,
    is_length_of_another_axis,
    operations,
    resolved,
    symbolic,
    walk_completes,
)

# The name of the functions that exchange slices between ranks.
SLICES = "tarantella_slices"
_RANDOM = ("Random", "TruncatedNormal", "Multinomial", "StandardNormal", "StatefulUniform", "Shuffle", "Rng")
# They give the batch where the loop over batches is within the function.
ITERATORS = ("IteratorGetNext", "OptionalGetValue")
# Stateful for TensorFlow, but alike on all ranks if their inputs are.
READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
_PASS = (*READS, "CheckNumerics", "CheckNumericsV2", "Print", "PrintV2")
# It gives all ranks the same: the rows of all of them.
GATHER = "TarantellaGather"


class Provenance(NamedTuple):
    """What a gradient is computed from. Constants, variables and sums over the ranks are alike on all ranks."""

    sums: bool  # sums over the ranks
    random: bool  # random numbers
    own: bool  # this rank's rows, or what the graph does not show


def provenance_of(gradient: Any) -> Provenance | None:
    """None eagerly. A variable counts as alike: where it is not, the comparison of weights finds it."""
    if tf.executing_eagerly():
        return None
    parts = [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices) else [gradient]
    found = _found_before([(each, None) for each in parts])
    return Provenance(*(name in found for name in Provenance._fields))


def is_from_own_rows(places: list[TensorInCall]) -> bool:
    """Whether any of these depends on this rank's rows, or on what the graph does not show, except through sums."""
    return "own" in _found_before(places, until="own")


def differs_between_ranks(places: list[TensorInCall]) -> bool:
    """As `is_from_own_rows`, or on random numbers, of which each rank draws others."""
    return not _found_before(places).isdisjoint(("own", "random"))


def reaches(place: TensorInCall, types: Sequence[str], but: Sequence[str] = ()) -> bool:
    """Whether a tensor is computed from operations of some types, except through those of other types."""

    def before(tensor: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
        if tensor.op.type in types:
            return None
        return [] if tensor.op.type in but else computed_from(tensor, call)[1]

    return not walk_completes(before, [place])


def _found_before(places: list[TensorInCall], until: str | None = None) -> set[str]:
    """The fields of `Provenance` that are true; `until` ends the search once found."""
    found: set[str] = set()

    def before(tensor: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
        kind, more = computed_from(tensor, call)
        found.add(kind)
        return None if kind == until else more

    walk_completes(before, places)
    return found


def computed_from(tensor: Any, call: FunctionCall | None) -> tuple[str, list[TensorInCall]]:
    """The field of `Provenance` that a tensor itself makes true, or "", and what else it is computed from."""
    op = tensor.op
    if is_sum(op):
        return "sums", []
    if op.type in ("Const", GATHER):
        return "", []
    places = resolved(tensor, call, control_flow=True)
    if places:
        return "", places
    inputs = [(each, call) for each in op.inputs if each.dtype != tf.resource]
    if any(part in op.type for part in _RANDOM):
        return "" if _has_constant_seed(op) else "random", inputs
    if op.type in ("Shape", "Size") and op.inputs[0].shape.is_fully_defined():
        return "", []
    if op.type in ITERATORS or not op.inputs or (op.op_def.is_stateful and op.type not in _PASS):
        return "own", []
    return "", [] if is_length_of_another_axis(tensor) else inputs


def _has_constant_seed(op: Any) -> bool:
    if not op.type.startswith("Stateless"):
        return False
    seeds = op.inputs[:1] if op.type.startswith("StatelessRandomGet") else op.inputs[1:2]
    seeds = [each.op.inputs[0] if each.op.type == "StatelessRandomGetKeyCounter" else each for each in seeds]
    return all(tf.get_static_value(each) is not None for each in seeds)


def is_sum(op: Any) -> bool:
    if op.type == "XlaCustomCallV2":
        return bool(op.get_attr("call_target_name") == b"tarantella_allreduce")
    return op.type == "TarantellaAllreduce" or (op.type == "PyFunc" and op.name.split("/")[-1].startswith(SLICES))


# By graph: the variables whose gradients its own code sums, by key.
_summed: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()


def note_summed(variables: set[int]) -> None:
    _summed.setdefault(tf.compat.v1.get_default_graph(), set()).update(variables)


def summed_in_trace() -> set[int]:
    """What is noted for the graph that is traced, those around it, and the functions that they call."""
    found: set[int] = set()
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None:
        found |= summed_in(graph)
        graph = getattr(graph, "outer_graph", None)
    return found


def summed_in(graph: Any) -> set[int]:
    """What is noted for a graph and the functions that it calls."""
    return set().union(*(_summed.get(each, ()) for each in graphs_within(graph)))


def loops_over_rows() -> list[str]:
    """The names of loops in the trace that sum gradients and iterate a number of times that depends on own rows."""
    found: list[str] = []
    for op, around in operations(tf.compat.v1.get_default_graph()):
        inside = [one for one in functions(op, around) if body(one) is not None]
        conditions: list[TensorInCall] = [(body(one).outputs[0], one) for one in inside if one.attribute == "cond"]
        sums = bool(conditions) and any(map(_sums, inside))
        found += [op.name] if sums and is_from_own_rows(conditions) else []
    return found


def _sums(call: FunctionCall) -> bool:
    return any(is_sum(op) for graph in graphs_within(body(call)) for op in graph.get_operations())


def are_unique(indices: Any) -> bool:
    """Whether indices come out of `tf.unique`, as with sparse inputs; Keras counts negative ones from the end."""
    places: list[TensorInCall] = [(indices, None)]
    while places:
        tensor, call = places[0]
        op = tensor.op
        if op.type in ("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"):
            return bool(tensor.value_index == 0)
        passes = {"Identity": 0, "Cast": 0, "Reshape": 0, "SelectV2": 2}.get(op.type)
        places = symbolic((resolved(tensor, call) or []) if passes is None else [(op.inputs[passes], call)])
    return False
