"""What only TensorFlow knows: reducing gradients in graphs and eagerly, seeds, undoing a step."""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import tree
from tensorflow.python.eager import context as eager_context
from tensorflow.python.ops import control_flow_util

from .. import _log, _runtime
from .._environment import integer
from .._names import name_of
from . import tensorflow_origin, tensorflow_slices

# KB of gradients that are reduced together; TNT_FUSION_THRESHOLD overrides it, 0 switches fusion off.
DEFAULT_FUSION_THRESHOLD = 1024

# The collection of a graph for XLA that holds a result of each call of the core.
_CALLS = "tarantella_calls"

_LIBRARY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "libtarantella_tensorflow.so")


class Plan(NamedTuple):
    """A plan of the core, as graphs use it."""

    number: int
    buckets: list[int]  # of each tensor
    anchor: tf.Variable  # what an operation reads so that it is never taken for a constant


# By owner: an optimizer's plans for the sets of variables that it was applied to, those of a loss or a layer for
# what it sums by the way.
_plans: weakref.WeakKeyDictionary[Any, dict[Any, Plan]] = weakref.WeakKeyDictionary()


@functools.lru_cache(maxsize=1)
def _operations() -> Any:
    return tf.load_op_library(_LIBRARY)


def compiled() -> bool:
    """Whether the graph that is traced now will be compiled by XLA (`jit_compile=True`)."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


@functools.lru_cache(maxsize=1)
def can_compile() -> bool:
    """Whether graphs compiled by XLA can reduce gradients with this TensorFlow."""
    _operations()
    try:
        _xla_custom_call()
    except (ImportError, AttributeError):  # no public name of TensorFlow
        return False
    return bool(ctypes.CDLL(_LIBRARY).tarantella_xla())


def _xla_custom_call() -> Any:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_custom_call_v2


def allreduce(owner: Any, gradients: Sequence[Any], variables: Sequence[Any], borrow: bool) -> list[Any]:
    """Sums each gradient over the ranks; `gradients` are `prepared` and may hold None, which stays None.

    In a graph this adds one operation a bucket of gradients, under XLA one call for all; the first trace for
    `owner` (an optimizer) and a set of variables is collective. With `borrow` the sums lie in memory that the next
    step overwrites: for consumers that keep nothing. Eagerly it blocks.
    A sparse gradient gets the slices that one process has for the global batch, whatever an optimizer does with
    repeated rows: those of rows from all ranks, those that do not come from rows (positions) summed.
    """
    gradients = list(gradients)
    sparse = [i for i, g in enumerate(gradients) if isinstance(g, list)]
    dense = [i for i, g in enumerate(gradients) if g is not None and i not in sparse]
    sums = _dense_sums(owner, [gradients[i] for i in dense], [variables[i] for i in dense], borrow) if dense else []
    # After the sums, so that no rank waits in the one exchange while another waits in the other.
    with tf.control_dependencies(sums):
        slices = tensorflow_slices.of_all_ranks([gradients[i] for i in sparse]) if sparse else []
    for i, result in zip([*dense, *sparse], [*sums, *slices], strict=True):
        gradients[i] = result
    return gradients


def _dense_sums(owner: Any, gradients: list[tf.Tensor], variables: list[Any], borrow: bool) -> list[tf.Tensor]:
    for gradient, variable in zip(gradients, variables, strict=True):
        if not tf.executing_eagerly():
            gradient.set_shape(variable.shape)
    reduction = plan(owner, gradients, variables)
    return _compiled(reduction, gradients, _latest_call()) if compiled() else _sums(reduction, gradients, borrow)


def _compiled(plan: Plan, values: list[tf.Tensor], after: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Has XLA call the core. `after` is `_latest_call()`."""
    sums: list[tf.Tensor] = _xla_custom_call()(
        [*values, *after],
        call_target_name="tarantella_allreduce",
        backend_config=f"{plan.number} {len(values)}",
        has_side_effect=True,
        result_dtypes=[value.dtype for value in values],
        result_shapes=[value.shape for value in values],
    )
    tf.compat.v1.add_to_collection(_CALLS, tf.stop_gradient(sums[-1]))
    return sums


def _latest_call() -> list[tf.Tensor]:
    """What the next call for XLA takes beside its values, unread: a result of the call before.

    Calls block, so all ranks must make them in one order, and XLA keeps no order but that of data.
    """
    return list(tf.compat.v1.get_collection(_CALLS)[-1:])


def _sums(plan: Plan, gradients: list[tf.Tensor], borrow: bool) -> list[tf.Tensor]:
    """One operation a bucket, which waits for all its gradients; eagerly one for all."""
    operation = _operations().tarantella_allreduce
    eager = tf.executing_eagerly()
    anchor = tf.constant(0, tf.int64) if eager else plan.anchor.read_value()
    summed: list[tf.Tensor] = [None] * len(gradients)
    for bucket in {0} if eager else set(plan.buckets):
        places = [i for i, each in enumerate(plan.buckets) if eager or each == bucket]
        # TensorFlow keeps eager kernels for ever, and a kernel that lends keeps the memory.
        lend = borrow and not eager
        sums = operation([gradients[i] for i in places], anchor, plan=plan.number, tensors=places, borrow=lend)
        for i, each in zip(places, sums, strict=True):
            summed[i] = each
    return summed


def plan(owner: Any, gradients: list[tf.Tensor], variables: list[Any]) -> Plan:
    """The core's plan for these gradients. Collective at the first call; later traces get the same one.

    It lives as long as `owner`, so that models made in a loop do not pile up memory.
    """
    key = tuple((id(v), g.dtype.name) for g, v in zip(gradients, variables, strict=True))
    tensors = [(name_of(v), g.dtype.name, tuple(v.shape)) for g, v in zip(gradients, variables, strict=True)]
    return _plan(owner, key, "the gradients", tensors)


def _plan(owner: Any, key: Any, what: str, tensors: list[tuple[str, str, tuple[int, ...]]]) -> Plan:
    if owner not in _plans:
        _plans[owner] = {}
        weakref.finalize(owner, _release, _plans[owner]).atexit = False
    if key not in _plans[owner]:
        threshold = integer("TNT_FUSION_THRESHOLD", DEFAULT_FUSION_THRESHOLD) * 1024
        number = _runtime.context().plan(what, tensors, threshold)
        _plans[owner][key] = Plan(number, _runtime.context().buckets(number, len(tensors)), counter())
    return _plans[owner][key]


def _release(plans: dict[Any, Plan]) -> None:
    for each in plans.values():
        _runtime.release(each.number)


def static_rows(batch: Any) -> tuple[int, ...]:
    """The numbers of rows of a batch's parts that TensorFlow knows while it traces."""
    shapes = [tf.TensorShape(leaf.shape) for leaf in tree.flatten(batch) if hasattr(leaf, "shape")]
    return tuple(sorted({shape[0] for shape in shapes if shape.rank and shape[0] is not None}))


def prepared(gradient: Any, variable: Any, rows: Sequence[int] | None = None) -> Any:
    """The gradient as `scale`, `zero_where` and `allreduce` take it: a sparse one in pieces.

    `rows` are the `static_rows` of the batch, by default those of what the function that is traced takes.
    Under XLA, whose shapes cannot depend on what other ranks have, slices become a dense gradient.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    if not compiled():
        return tensorflow_slices.pieces(gradient, _rows_of_function() if rows is None else rows)
    _log.warn_once(
        f"under jit_compile=True the sparse gradient of {variable.path!r} is made dense before it is reduced, so "
        "optimizers that tell repeated rows apart differ from one process; compile with jit_compile=False"
    )
    return tf.convert_to_tensor(gradient)


def _rows_of_function() -> tuple[int, ...]:
    parts: list[Any] = []
    graph = tf.compat.v1.get_default_graph()
    while hasattr(graph, "outer_graph"):
        captured = {id(inner) for _, inner in graph.captures}
        parts += [each for each in graph.inputs if id(each) not in captured]
        parts += [
            each for op in graph.get_operations() if op.type in tensorflow_origin.ITERATORS for each in op.outputs
        ]
        graph = graph.outer_graph
    return static_rows(parts)


def without_repeats(value: Any) -> Any:
    """Slices of which each row has one, the sum of those it had, in a fixed order; any other value as it is."""
    return tensorflow_slices.without_repeats(value) if isinstance(value, tf.IndexedSlices) else value


def scale(gradient: Any, weight: Callable[[Any], Any]) -> Any:
    """The gradient times `weight(dtype)`."""
    if gradient is None:
        return None
    if isinstance(gradient, list):
        return tensorflow_slices.changed(gradient, lambda values, at: (values * weight(values.dtype), at))
    return gradient * weight(gradient.dtype)


def sum_over_ranks(owner: Any, what: str, values: tf.Tensor) -> tf.Tensor:
    """The sum over the ranks of a small float32 or float64 tensor of a known shape, within a step.

    `what` tells an owner's sums apart. Collective at the first trace, as `allreduce`; eagerly it blocks.
    """
    reduction = None if tf.executing_eagerly() else _plan_of_sum(owner, what, values)
    return _sum_of(reduction, what, values, _latest_call())


def _plan_of_sum(owner: Any, what: str, values: tf.Tensor) -> Plan:
    tensors = [(what, values.dtype.name, tuple(values.shape))]
    return _plan(owner, (what, values.dtype.name), what, tensors)


def _sum_of(reduction: Plan | None, what: str, values: tf.Tensor, after: Sequence[tf.Tensor]) -> tf.Tensor:
    if reduction is None:
        return tf.convert_to_tensor(_runtime.context().allreduce(values.numpy().ravel(), what).reshape(values.shape))
    if compiled():
        return _compiled(reduction, [values], after)[0]
    (total,) = _sums(reduction, [values], borrow=False)
    # What depends on data alone could run before the step before has ended: the anchor keeps steps apart.
    with tf.control_dependencies([total]):
        reduction.anchor.assign_add(1)
    return total


def differentiable_sum(owner: Any, what: str, values: tf.Tensor) -> tf.Tensor:
    """`sum_over_ranks` whose gradient is the sum of all ranks' gradients."""

    names = (what, f"{what}, gradient")
    # TensorFlow keeps the function for ever: it must not hold the owner.
    plans = [None if tf.executing_eagerly() else _plan_of_sum(owner, name, values) for name in names]

    @tf.custom_gradient
    def total(values: tf.Tensor, *after: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> Any:
            return _sum_of(plans[1], names[1], upstream, _latest_call()), *(None for _ in after)

        return _sum_of(plans[0], names[0], values, after), gradient

    return total(values, *_latest_call())


def apart(function: Callable[[], Any]) -> Any:
    """Runs `function` eagerly, where neither a graph is traced nor a Keras layer is called: in a fresh thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def zero_where(condition: tf.Tensor, gradient: Any) -> Any:
    """The gradient, or exact zeros (also in place of inf and nan) where the condition holds: no slices at all."""
    if gradient is None:
        return None
    if isinstance(gradient, list):

        def none(values: tf.Tensor, indices: tf.Tensor) -> Any:
            kept = tf.where(condition, 0, tf.shape(indices)[0])
            return values[:kept], indices[:kept]

        return tensorflow_slices.changed(gradient, none)
    gradient = tf.convert_to_tensor(gradient)
    # Not tf.where: it would copy every gradient in every step for the rare batch that is too small.
    return tf.cond(condition, lambda: tf.zeros_like(gradient), lambda: gradient)


def undo_where(condition: tf.Tensor, variables: Sequence[Any], step: Callable[[], Any]) -> Any:
    """Runs `step`; where the condition holds, `variables` get back the values that they had before."""
    values = [getattr(v, "value", v) for v in variables]

    # Both branches must agree in type only: where nothing is undone, nothing is copied.
    def keep() -> list[tf.Tensor]:
        return [tf.reshape(tf.identity(v), [-1]) for v in values]

    def skip() -> list[tf.Tensor]:
        return [tf.zeros([0], v.dtype) for v in values]

    # XLA wants the shapes to agree too.
    saved = [] if not values else keep() if compiled() else tf.cond(condition, keep, skip)
    result = step()

    def restore() -> tf.Tensor:
        for value, old in zip(values, saved, strict=True):
            value.assign(tf.reshape(old, value.shape))
        return tf.constant(0)

    if values:
        tf.cond(condition, restore, lambda: tf.constant(0))
    return result


def trace(step: Callable[[Any], Any], spec: Any) -> None:
    """Creates what `step` creates when it first takes a batch of the type `spec`, and runs nothing of it.

    Raises what the step raises.
    """
    spec = tree.map_structure(lambda leaf: None if isinstance(leaf, tf.OptionalSpec) else leaf, spec)
    tf.function(step, autograph=False).get_concrete_function(spec)


def has_value(variable: Any) -> bool:
    """False for a variable that was made in a trace that failed."""
    value = getattr(variable, "value", variable)
    return not isinstance(value, tf.Variable) or bool(value.is_initialized())


# By optimizer: whether its first gradients have been looked at.
_looked: weakref.WeakKeyDictionary[Any, tf.Variable] = weakref.WeakKeyDictionary()


def look_once(owner: Any, values: Sequence[Any], sums: Sequence[Any], look: Callable[[Any, Any], None]) -> None:
    """Calls `look` with the arrays of the largest of `values`, and of its sum, the first time that this runs.

    In a graph it is part of it; under XLA nothing is looked at, nor slices, nor floats of less than 32 bits.
    """
    dense = [i for i, v in enumerate(values) if isinstance(v, tf.Tensor) and v.dtype in (tf.float32, tf.float64)]
    if not dense or compiled():
        return
    largest = max(dense, key=lambda i: values[i].shape.num_elements() or 0)
    looked = _looked.setdefault(owner, counter())

    def call(own: Any, total: Any) -> np.int64:
        look(own, total)
        return np.int64(0)

    def run() -> tf.Tensor:
        looked.assign(1)
        return tf.numpy_function(call, [values[largest], sums[largest]], tf.int64)

    tf.cond(looked == 0, run, lambda: tf.constant(0, tf.int64))


def counter() -> tf.Variable:
    """A number that steps may add to; it is no part of any model. Made also while a step is traced again."""
    return apart(lambda: tf.Variable(0, dtype=tf.int64, trainable=False))


def count_nan(values: Sequence[Any]) -> tf.Tensor | None:
    """How many numbers are NaN in those that are dense tensors of floats; None where none is."""
    floats = [v for v in values if isinstance(v, tf.Tensor) and v.dtype.is_floating]
    return tf.add_n([tf.math.count_nonzero(tf.math.is_nan(v)) for v in floats]) if floats else None


def checksum(variables: Sequence[Any]) -> int:
    """One number of 64 bits for the values of these variables, at the speed of memory."""
    return int(_operations().tarantella_checksum([tf.convert_to_tensor(v) for v in variables]))


def ratio(part: Any, whole: Any, dtype: Any) -> tf.Tensor:
    """part / whole in the given type, 0 where the whole is; a constant to gradients."""
    quotient = tf.math.divide_no_nan(tf.cast(part, tf.float64), tf.cast(whole, tf.float64))
    return tf.stop_gradient(tf.cast(quotient, dtype))


def global_seed() -> int | None:
    """The seed of tf.random.set_seed, or None."""
    seed: int | None = eager_context.global_seed()
    return seed


def set_global_seed(seed: int) -> None:
    """Sets the seed from which TensorFlow derives those of its operations."""
    tf.random.set_seed(seed)


def gradients(loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
    """The gradients of what `loss` returns, None where it does not depend on a variable. Eager."""
    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, [v.value for v in variables])
    return [None if g is None else tf.convert_to_tensor(g) for g in found]
