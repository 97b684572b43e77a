"""How graphs, also those that XLA compiles, call the core: its operations, plans, and the order of their runs."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import functools
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from ..steps import core_plan, in_fresh_thread


class Plan(NamedTuple):
    """A plan of the core, as graphs use it."""

    number: int
    buckets: list[int]  # of each tensor
    # Always 0: no number of a step. Operations read it, so that TensorFlow does not treat them as constants.
    zero_variable: tf.Variable


class StepCheck(enum.IntEnum):
    """Between which ranks the core compares the steps in which a plan is submitted: see `tnt_step_check`."""

    ON_NODE = 0
    ON_ALL_NODES = 1
    EXCLUSIVE = 2  # as ON_ALL_NODES; a rank submits nothing else before these are summed


def plan(
    owner: Any,
    key: Any,
    what: str,
    tensors: list[tuple[str, str, tuple[int, ...]]],
    context: Any,
    step_check: StepCheck = StepCheck.ON_NODE,
) -> Plan:
    """`core_plan`, as graphs use it."""

    def make(number: int) -> Plan:
        return Plan(number, context.buckets(number, len(tensors)), zero_variable())

    found: Plan = core_plan(owner, key, what, tensors, context, int(step_check), make)
    return found


# By owner and the variables of a reduction: what its runs read when they begin, and assign when they have ended.
_runs: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], tf.Variable]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def ordered_runs(owner: Any, variables: Sequence[Any], step_number: Any) -> Iterator[tuple[Any, list[tf.Tensor]]]:
    """Orders the runs of one reduction in a step, as in a loop or in two calls of a function.

    Each starts after the one before has ended (`serialized`). Without a `step_number` nothing is ordered.
    """
    if step_number is None or tf.executing_eagerly():
        yield step_number, []
        return
    runs, key = _runs.setdefault(owner, {}), tuple(id(v) for v in variables)
    if key not in runs:
        runs[key] = zero_variable()
    with serialized(runs[key], step_number) as turn:
        yield turn


@contextlib.contextmanager
def serialized(variable: tf.Variable, step_number: Any) -> Iterator[tuple[Any, list[tf.Tensor]]]:
    """Within a graph: keeps runs apart that name the same variable, so that each begins after the one before has ended.

    Gives `step_number` as a tensor that exists once the run before has ended, and a list to which the caller adds the
    tensors with which this run ends. TensorFlow keeps the order of operations that use a variable, also in branches,
    loops and functions.
    """
    ended: list[tf.Tensor] = []
    if not tf.executing_eagerly():
        with tf.control_dependencies([variable.read_value()]):
            step_number = tf.identity(step_number)
    yield step_number, ended
    if not tf.executing_eagerly():
        assign_after(ended, variable)


def assign_after(tensors: Sequence[tf.Tensor], variable: tf.Variable) -> None:
    """Assigns the variable its value of 0, once the tensors exist."""
    # Made below, the constant alone would depend on the tensors, and TensorFlow drops that.
    zero = tf.zeros(variable.shape, variable.dtype)
    with tf.control_dependencies(tensors):
        variable.assign(zero)


def ends_of_runs(owners: Sequence[Any]) -> list[tf.Tensor]:
    """In a graph: tensors that exist once all runs for these owners have ended."""
    return [run.read_value() for owner in owners for run in _runs.get(owner, {}).values()]


LIBRARY = str(Path(__file__).parents[2] / "libtarantella_tensorflow.so")


@functools.lru_cache(maxsize=1)
def operations() -> Any:
    """The functions that call the core's operations. Loads them when it is first called."""
    return tf.load_op_library(LIBRARY)


def zero_variable() -> tf.Variable:
    return in_fresh_thread(lambda: tf.Variable(tf.zeros([], tf.int64), trainable=False))


# The collection of a graph for XLA that holds a result of each call of the core.
_XLA_CALLS = "tarantella_calls"


def is_xla() -> bool:
    """Whether the graph that is traced now will be compiled by XLA (`jit_compile=True`)."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


@functools.cache
def _xla_custom_call() -> Any:
    """The operation with which XLA calls a function; None where it cannot call the core."""
    operations()
    try:
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops

        found = gen_xla_ops.xla_custom_call_v2
    except (ImportError, AttributeError):  # no public name of TensorFlow
        return None
    return found if ctypes.CDLL(LIBRARY).tarantella_xla() else None


def why_not_compiled() -> str:
    if tf.config.get_visible_devices("GPU"):
        return "GPUs, on which XLA cannot call tarantella yet"
    return "" if _xla_custom_call() else "this version of TensorFlow"


def xla_call(
    plan: Plan, values: list[tf.Tensor], after: Sequence[tf.Tensor], step_number: tf.Tensor | None = None
) -> list[tf.Tensor]:
    """Has XLA call the core. `after` is `latest_xla_call()`.

    Raises NotImplementedError where XLA cannot.
    """
    custom_call = _xla_custom_call()
    if custom_call is None:
        raise NotImplementedError("XLA cannot call tarantella in this TensorFlow; compile with jit_compile=False")
    step_numbers = [] if step_number is None else [step_number]
    sums: list[tf.Tensor] = custom_call(
        [*values, *step_numbers, *after],
        call_target_name="tarantella_allreduce",
        backend_config=f"{plan.number} {len(values)} {len(step_numbers)}",
        has_side_effect=True,
        result_dtypes=[value.dtype for value in values],
        result_shapes=[value.shape for value in values],
    )
    tf.compat.v1.add_to_collection(_XLA_CALLS, tf.stop_gradient(sums[-1]))
    return sums


def latest_xla_call() -> list[tf.Tensor]:
    """What the next call for XLA takes beside its values, unread: a result of the call before.

    Calls block, so all ranks must make them in one order, and XLA keeps no order but that of data.
    """
    return list(tf.compat.v1.get_collection(_XLA_CALLS)[-1:])
