"""Sums over ranks within a step: of gradients, and of small tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..._exchange import short_name_of
from ..._job import log, runtime
from ..._job.groups import Group
from ..steps import known_rows
from . import plans, slices, steps
from .plans import operations
from .provenance import ITERATORS


def allreduce(
    owner: Any,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    weight: float = 1.0,
    alias_outputs: bool = False,
    group: Group | None = None,
    check: bool = False,
    inspect: Callable[[Any, Any], None] | None = None,
    rows: Sequence[int] | None = None,
    empty: tf.Tensor | None = None,
    step_number: tf.Tensor | None = None,
) -> list[Any]:
    """`Backend.allreduce`. In a graph one operation a bucket of gradients, under XLA one call for all.

    `rows` are the numbers of rows of the batch that are known, by default those of what the traced function takes.
    Where `empty`, a scalar bool, is true, this rank's gradients count as zeros, or as no slices. `step_number` is a
    scalar of int64: where ranks are in different steps, MismatchError ends the job. With it the code around may run in
    loops, and twice in a step.
    """
    own = list(gradients) if weight == 1 else [slices.scaled(each, lambda _: weight) for each in gradients]
    results = [_without_slices(g, v) if plans.is_xla() else g for g, v in zip(own, variables, strict=True)]
    sparse = [i for i, each in enumerate(results) if isinstance(each, tf.IndexedSlices)]
    dense = [i for i, each in enumerate(results) if each is not None and i not in sparse]
    group = Group() if group is None else group
    pieces = [slices.by_lookup(results[i], _rows_of_function() if rows is None else rows, empty) for i in sparse]
    with plans.ordered_runs(owner, variables, step_number) as (step_number, ended):
        sums: list[tf.Tensor] = []
        if dense:
            of_dense = [results[i] for i in dense], [variables[i] for i in dense]
            plan = _plan_of_gradients(owner, *of_dense, group, step_number is not None, check)
            sums = _sums(plan, of_dense[0], alias_outputs, empty, step_number)
        # After the sums, so that no rank waits in the one exchange while another waits in the other.
        with tf.control_dependencies(sums):
            names = [short_name_of(variables[i]) for i in sparse] if check else []
            joined = slices.of_all_ranks(pieces, group, step_number, names) if sparse else []
        ended += [*sums, *(each.values for each in joined)]
    for i, result in zip([*dense, *sparse], [*sums, *joined], strict=True):
        results[i] = result
    if inspect is not None:
        steps.inspect_once(owner, own, results, inspect)
    return results


def _plan_of_gradients(
    owner: Any, gradients: list[tf.Tensor], variables: list[Any], group: Group, compares_step_number: bool, check: bool
) -> plans.Plan:
    for gradient, variable in zip(gradients, variables, strict=True):
        if not tf.executing_eagerly():
            gradient.set_shape(variable.shape)
    step_check = plans.StepCheck.ON_ALL_NODES if compares_step_number else plans.StepCheck.ON_NODE
    types = [gradient.dtype.name for gradient in gradients]
    key = (group.ranks, step_check, *((id(v), dtype) for v, dtype in zip(variables, types, strict=True)))
    tensors = [(short_name_of(v), dtype, tuple(v.shape)) for v, dtype in zip(variables, types, strict=True)]
    context = group.context()
    plan = plans.plan(owner, key, "the gradients", tensors, context, step_check)
    if check and context is not None:
        context.check_finite(plan.number)
    return plan


def _sums(
    plan: plans.Plan,
    gradients: list[tf.Tensor],
    alias_outputs: bool = False,
    empty: tf.Tensor | None = None,
    step_number: tf.Tensor | None = None,
    after: Sequence[tf.Tensor] | None = None,
) -> list[tf.Tensor]:
    """One operation a bucket, which waits for all its gradients; eagerly, and under XLA, one for all.

    `after` is `plans.latest_xla_call()`, by default that of now.
    """
    if plans.is_xla():
        values = gradients if empty is None else [tf.where(empty, tf.zeros_like(each), each) for each in gradients]
        return plans.xla_call(plan, values, plans.latest_xla_call() if after is None else after, step_number)
    eager = tf.executing_eagerly()
    empty = tf.constant(False) if empty is None else empty
    if step_number is None:
        step_number = tf.constant(0, tf.int64) if eager else plan.zero_variable.read_value()
    summed: list[tf.Tensor] = [None] * len(gradients)
    for bucket in {0} if eager else set(plan.buckets):
        places = [i for i, each in enumerate(plan.buckets) if eager or each == bucket]
        sums = operations().tarantella_allreduce(
            [gradients[i] for i in places],
            step_number,
            empty,
            plan=plan.number,
            tensors=places,
            # TensorFlow keeps eager kernels for ever, and a kernel with aliases keeps the memory.
            alias_outputs=alias_outputs and not eager,
        )
        if not eager and len(sums) > 1:
            sums = operations().tarantella_identity_n(sums)
        for i, each in zip(places, sums, strict=True):
            summed[i] = each
    return summed


def _without_slices(gradient: Any, variable: Any) -> Any:
    """For XLA, whose shapes cannot depend on what other ranks have."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    log.warn_once(
        f"jit_compile=True makes the sparse gradient of {variable.path!r} dense before it is reduced, so optimizers "
        "that treat repeated rows differently give other results than on one process; compile with jit_compile=False"
    )
    return tf.convert_to_tensor(gradient)


def _rows_of_function() -> tuple[int, ...]:
    parts: list[Any] = []
    graph = tf.compat.v1.get_default_graph()
    while hasattr(graph, "outer_graph"):
        captured = {id(inner) for _, inner in graph.captures}
        parts += [each for each in graph.inputs if id(each) not in captured]
        parts += [each for op in graph.get_operations() if op.type in ITERATORS for each in op.outputs]
        graph = graph.outer_graph
    return known_rows(parts)


def without_repeats(value: Any) -> Any:
    if not isinstance(value, tf.IndexedSlices):
        return value
    rows, places = tf.unique(value.indices)
    return slices.with_slices(value, tf.math.unsorted_segment_sum(value.values, places, tf.size(rows)), rows)


def _plan_of_sum(
    owner: Any,
    what: str,
    values: tf.Tensor,
    context: Callable[[], Any],
    step_check: plans.StepCheck = plans.StepCheck.ON_NODE,
) -> plans.Plan:
    tensors = [(what, values.dtype.name, tuple(values.shape))]
    return plans.plan(owner, (what, values.dtype.name), what, tensors, context(), step_check)


def sum_over_ranks(
    owner: Any,
    what: str,
    values: tf.Tensor,
    differentiable: bool = False,
    context: Callable[[], Any] = runtime.context,
) -> tf.Tensor:
    # TensorFlow keeps the functions below for ever: they must not hold the owner.
    names = [what, f"{what}, gradient"] if differentiable else [what]
    known = {name: None if tf.executing_eagerly() else _plan_of_sum(owner, name, values, context) for name in names}

    def sum_of(name: str, values: tf.Tensor, after: Sequence[tf.Tensor]) -> tf.Tensor:
        plan = known[name]
        if plan is None:
            return tf.convert_to_tensor(context().allreduce(values.numpy().ravel(), name).reshape(values.shape))
        (total,) = _sums(plan, [values], after=after)
        if not plans.is_xla():  # what depends on data alone could run before the step before has ended
            plans.assign_after([total], plan.zero_variable)
        return total

    @tf.custom_gradient
    def with_gradient(values: tf.Tensor, *after: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> Any:
            return sum_of(names[1], upstream, plans.latest_xla_call()), *(None for _ in after)

        return sum_of(what, values, after), gradient

    after = plans.latest_xla_call()
    return with_gradient(values, *after) if differentiable else sum_of(what, values, after)


def check_step_end(
    owner: Any, after_owners: Sequence[Any], what: str, step_number: tf.Tensor, before_variable: Any
) -> None:
    """Compares `step_number`, a scalar of int64 and not 0, between ranks at the end of a step. Collective.

    MismatchError ends the job if it differs. Waits for all reductions with a step number for `after_owners`; what reads
    `before_variable` waits for it. A rank that waits here while another waits for its gradients ends the job with
    MismatchError, too. `what` names the numbers in errors.
    """
    values = tf.zeros([1])
    plan = _plan_of_sum(owner, what, values, runtime.context, plans.StepCheck.EXCLUSIVE)
    if plans.is_xla():
        _sums(plan, [values], step_number=step_number)
        return
    before = [] if tf.executing_eagerly() else plans.ends_of_runs(after_owners)
    with tf.control_dependencies(before):
        met = _sums(plan, [values], step_number=tf.identity(step_number))
    # It must use the value: TensorFlow removes an operation that only others wait for.
    before_variable.assign_add(tf.broadcast_to(tf.cast(met[0], before_variable.dtype), before_variable.shape))
