"""Sums over ranks within a step: of gradients, and of small tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..._job import log, runtime
from ..._job.groups import Group
from ..._names import short_name_of
from ..gradients import known_rows
from . import plans, slices, xla
from .operations import operations
from .upstream import ITERATORS


def allreduce(
    owner: Any,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    alias_outputs: bool,
    group: Group | None = None,
    contributes_zeros: tf.Tensor | None = None,
    number: tf.Tensor | None = None,
    check: bool = False,
) -> list[Any]:
    """The sum of each `prepared` gradient over the ranks of the group, by default all; None stays None. Collective.

    Where `contributes_zeros`, a scalar bool, is true, zeros stand in for this rank's dense gradients. `number`, a
    scalar of int64, is that of the training step: where ranks are in different ones, MismatchError ends the job. With
    it the code around may run in loops, and twice in a step. `alias_outputs`, `check`: as in `Backend.allreduce`.

    In a graph this adds one operation a bucket of gradients, under XLA one call for all.
    """
    gradients = list(gradients)
    sparse = [i for i, g in enumerate(gradients) if isinstance(g, list)]
    dense = [i for i, g in enumerate(gradients) if g is not None and i not in sparse]
    group = Group() if group is None else group
    with plans.following_runs(owner, variables, number) as (number, ended):
        of_dense = [gradients[i] for i in dense], [variables[i] for i in dense]
        sums = _dense_sums(owner, *of_dense, alias_outputs, group, contributes_zeros, number, check)
        # After the sums, so that no rank waits in the one exchange while another waits in the other.
        with tf.control_dependencies(sums):
            names = [short_name_of(variables[i]) for i in sparse] if check else []
            joined = slices.of_all_ranks([gradients[i] for i in sparse], group, number, names) if sparse else []
        ended += [*sums, *(each.values for each in joined)]
    for i, result in zip([*dense, *sparse], [*sums, *joined], strict=True):
        gradients[i] = result
    return gradients


def _dense_sums(
    owner: Any,
    gradients: list[tf.Tensor],
    variables: list[Any],
    alias_outputs: bool,
    group: Group,
    contributes_zeros: tf.Tensor | None,
    number: tf.Tensor | None,
    check: bool,
) -> list[tf.Tensor]:
    if not gradients:
        return []
    for gradient, variable in zip(gradients, variables, strict=True):
        if not tf.executing_eagerly():
            gradient.set_shape(variable.shape)
    numbers = plans.Numbers.NONE if number is None else plans.Numbers.OF_STEPS
    reduction = plans.plan(owner, gradients, variables, group, numbers, check)
    if not xla.compiled():
        return _sums(reduction, gradients, alias_outputs, contributes_zeros, number)
    if contributes_zeros is not None:
        gradients = [tf.where(contributes_zeros, tf.zeros_like(gradient), gradient) for gradient in gradients]
    return xla.call(reduction, gradients, xla.latest_call(), number)


def _sums(
    plan: plans.Plan,
    gradients: list[tf.Tensor],
    alias_outputs: bool,
    contributes_zeros: tf.Tensor | None = None,
    number: tf.Tensor | None = None,
) -> list[tf.Tensor]:
    """One operation a bucket, which waits for all its gradients; eagerly one for all."""
    operation = operations().tarantella_allreduce
    eager = tf.executing_eagerly()
    if number is None:
        number = tf.constant(0, tf.int64) if eager else plan.zero_variable.read_value()
    contributes_zeros = tf.constant(False) if contributes_zeros is None else contributes_zeros
    summed: list[tf.Tensor] = [None] * len(gradients)
    for bucket in {0} if eager else set(plan.buckets):
        places = [i for i, each in enumerate(plan.buckets) if eager or each == bucket]
        # TensorFlow keeps eager kernels for ever, and a kernel with aliases keeps the memory.
        alias_outputs = alias_outputs and not eager
        sums = operation(
            [gradients[i] for i in places],
            number,
            contributes_zeros,
            plan=plan.number,
            tensors=places,
            alias_outputs=alias_outputs,
        )
        if not eager and len(sums) > 1:
            sums = operations().tarantella_identity_n(sums)
        for i, each in zip(places, sums, strict=True):
            summed[i] = each
    return summed


def prepared(gradient: Any, variable: Any, rows: Sequence[int] | None = None) -> Any:
    """The gradient as `allreduce` takes it: a sparse one becomes a list of pieces.

    `rows` are the numbers of rows of the batch that are known, by default those of what the traced function takes.
    Under XLA, whose shapes cannot depend on what other ranks have, slices become a dense gradient.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    if not xla.compiled():
        return slices.pieces(gradient, _rows_of_function() if rows is None else rows)
    log.warn_once(
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
        parts += [each for op in graph.get_operations() if op.type in ITERATORS for each in op.outputs]
        graph = graph.outer_graph
    return known_rows(parts)


def without_repeats(value: Any) -> Any:
    return slices.without_repeats(value) if isinstance(value, tf.IndexedSlices) else value


def sum_over_ranks(owner: Any, what: str, values: tf.Tensor) -> tf.Tensor:
    reduction = None if tf.executing_eagerly() else _plan_of_sum(owner, what, values, runtime.context)
    return _sum_of(reduction, what, values, xla.latest_call(), runtime.context)


def _plan_of_sum(
    owner: Any,
    what: str,
    values: tf.Tensor,
    context: Callable[[], Any],
    numbers: plans.Numbers = plans.Numbers.NONE,
) -> plans.Plan:
    tensors = [(what, values.dtype.name, tuple(values.shape))]
    return plans.plan_of(owner, (what, values.dtype.name), what, tensors, context(), numbers)


def _sum_of(
    reduction: plans.Plan | None,
    what: str,
    values: tf.Tensor,
    after: Sequence[tf.Tensor],
    context: Callable[[], Any],
) -> tf.Tensor:
    if reduction is None:
        return tf.convert_to_tensor(context().allreduce(values.numpy().ravel(), what).reshape(values.shape))
    if xla.compiled():
        return xla.call(reduction, [values], after)[0]
    (total,) = _sums(reduction, [values], alias_outputs=False)
    # What depends on data alone could run before the step before has ended.
    plans.assign_after([total], reduction.zero_variable)
    return total


def differentiable_sum(
    owner: Any, what: str, values: tf.Tensor, context: Callable[[], Any] = runtime.context
) -> tf.Tensor:
    names = (what, f"{what}, gradient")
    # TensorFlow keeps the function for ever: it must not hold the owner.
    reductions = [None if tf.executing_eagerly() else _plan_of_sum(owner, name, values, context) for name in names]

    @tf.custom_gradient
    def total(values: tf.Tensor, *after: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> Any:
            return _sum_of(reductions[1], names[1], upstream, xla.latest_call(), context), *(None for _ in after)

        return _sum_of(reductions[0], names[0], values, after, context), gradient

    return total(values, *xla.latest_call())


def meet(owner: Any, followed: Sequence[Any], what: str, number: tf.Tensor, then: Any) -> None:
    """In a step: where ranks come here with different `number`s, a scalar of int64, not 0: MismatchError. Collective.

    Runs after all reductions with a number for the owners `followed`, and before what reads the variable `then`. A
    rank that waits here while another waits for its gradients ends the job with MismatchError, too. `what` names the
    numbers in errors.
    """
    values = tf.zeros([1])
    plan = _plan_of_sum(owner, what, values, runtime.context, plans.Numbers.EXCLUSIVE)
    if xla.compiled():
        xla.call(plan, [values], xla.latest_call(), number)
        return
    before = [] if tf.executing_eagerly() else plans.ends_of_runs(followed)
    with tf.control_dependencies(before):
        met = _sums(plan, [values], alias_outputs=False, number=tf.identity(number))
    # It must use the value: TensorFlow removes an operation that only others wait for.
    then.assign_add(tf.broadcast_to(tf.cast(met[0], then.dtype), then.shape))
