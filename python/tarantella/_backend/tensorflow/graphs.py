"""Walking a graph backwards, through the functions, branches and loops that it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_IFS, _CASES, _LOOPS = ("If", "StatelessIf"), ("Case", "StatelessCase"), ("While", "StatelessWhile")
BRANCHES = (*_IFS, *_CASES)
# The attributes that name the functions of an operation.
_FUNCTIONS = {
    **dict.fromkeys(CALLS, ("f",)),
    **dict.fromkeys(_IFS, ("then_branch", "else_branch")),
    **dict.fromkeys(_LOOPS, ("cond", "body")),
}


class FunctionCall(NamedTuple):
    """What runs a function, inside of which a tensor lies: an operation, and which of its functions it is."""

    op: Any
    around: FunctionCall | None  # what runs the function that the operation lies in, or None
    attribute: str = "f"
    branch: int = 0  # in a list of functions


# A tensor, and what runs the function it lies in: None in the graph that is traced, or in one around it.
Place = tuple[Any, FunctionCall | None]
# What leads to a tensor; None where the walk shall end.
Step = Callable[[Any, FunctionCall | None], list[Place] | None]


def all_before(step: Step, pending: list[Place]) -> bool:
    """Whether no tensor on the way back from the pending ones gives None."""
    seen: set[tuple[int, str, FunctionCall | None]] = set()
    pending = symbolic(pending)
    while pending:
        each, call = pending.pop()
        key = (id(each.graph), each.name, call)
        if key in seen:
            continue
        seen.add(key)
        before = step(each, call)
        if before is None:
            return False
        pending.extend(symbolic(before))
    return True


def symbolic(places: Iterable[Place]) -> list[Place]:
    """Without what functions have captured of eager tensors: it is a constant."""
    return [place for place in places if tf.is_symbolic_tensor(place[0])]


def through(tensor: Any, call: FunctionCall | None, control_flow: bool = False) -> list[Place] | None:
    """What a function's placeholder, or one of several outputs of an operation, stands for; nothing for other tensors.

    With `control_flow` also the outputs of conditions and loops, with what decides which branch or turn gives them.
    None where that is not known.
    """
    op = tensor.op
    if op.type in CALLS:
        inside = FunctionCall(op, call)
        return None if body(inside) is None else [(body(inside).outputs[tensor.value_index], inside)]
    if control_flow and op.type in BRANCHES:
        each = functions(op, call)
        return [(op.inputs[0], call), *((body(one).outputs[tensor.value_index], one) for one in each)]
    if control_flow and op.type in _LOOPS:
        condition, turn = functions(op, call)
        return [
            (op.inputs[tensor.value_index], call),
            (body(turn).outputs[tensor.value_index], turn),
            (body(condition).outputs[0], condition),
        ]
    if op.type == "IdentityN":  # of a custom gradient
        return [(op.inputs[tensor.value_index], call)]
    if op.type != "Placeholder":
        return []
    return _of_placeholder(tensor, call)


def operations(graph: Any, call: FunctionCall | None = None) -> Iterator[tuple[Any, FunctionCall | None]]:
    """Those of a graph and of the functions that it runs, each with what runs it."""
    for op in graph.get_operations():
        yield op, call
        for inside in functions(op, call):
            if body(inside) is not None:
                yield from operations(body(inside), inside)


def graphs_within(graph: Any) -> list[Any]:
    """A graph and those of the functions that it runs, each once."""
    found: dict[int, Any] = {}
    waiting = [graph]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            inside = [body(call) for op in each.get_operations() for call in functions(op, None)]
            waiting += [one for one in inside if one is not None]
    return list(found.values())


def body(call: FunctionCall) -> Any:
    """The graph of the function that runs; None where TensorFlow does not show it."""
    found = call.op.get_attr(call.attribute)
    name = (found[call.branch] if isinstance(found, list) else found).name
    return getattr(call.op.graph._get_function(name), "graph", None)


def functions(op: Any, around: FunctionCall | None) -> list[FunctionCall]:
    """The functions that an operation runs."""
    if op.type in _CASES:
        return [FunctionCall(op, around, "branches", i) for i in range(len(op.get_attr("branches")))]
    return [FunctionCall(op, around, attribute) for attribute in _FUNCTIONS.get(op.type, ())]


def _of_placeholder(tensor: Any, call: FunctionCall | None) -> list[Place] | None:
    if call is None:
        captured = [outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]
        return [(captured[0], None)] if captured else None
    places = [i for i, each in enumerate(body(call).inputs) if each is tensor]
    if not places:
        return None
    inputs = call.op.inputs[1:] if call.op.type in BRANCHES else call.op.inputs
    found = [(inputs[places[0]], call.around)]
    if call.op.type in _LOOPS:  # what a turn gives is the next one's input
        turn = call._replace(attribute="body")
        found.append((body(turn).outputs[places[0]], turn))
    return found
