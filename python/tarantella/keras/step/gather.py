"""The rows of all ranks: for `tarantella.gather_rows`, and for losses and metrics computed on the global batch.

User-defined losses and metrics get the labels and predictions of all ranks. That is exact for every function of these
(`batch_dependent` knows which need it).

Whether rows can be gathered is decided once for each kind of rows, by all ranks together.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from ... import _exchange
from ..._backend import backend
from ..._job import log, runtime
from ..._job.environment import integer
from .. import model_state, private
from .step import Step, current_step

# Whether a model is tried out now (see `trial`).
in_trial: contextvars.ContextVar[bool] = contextvars.ContextVar("tarantella_trial", default=False)


def gather_rows(structure: Any) -> Any:
    """Returns the rows of all ranks, in the order of the global batch, for a step that looks across rows.

    A loss that is computed with them needs nothing else, be it one number for the global batch, as in SimCLR or CLIP,
    or a mean over this rank's rows: gradients and logs are those of one process. Collective: all ranks call it equally
    often in each step. MismatchError ends the job where their rows differ in type or shape.

    Args:
        structure: A dense tensor of numbers, or a structure of them, with equally many rows (axis 0). None stays None.

    Returns:
        The same structure, with the rows of all ranks, and of the masks and logits that Keras has attached to tensors.
        On one rank, and outside of a distributed `train_step` or `test_step`, the tensors as they are.

    Raises:
        ValueError: A value has no axis 0, or is no dense tensor of numbers; or the model's `tnt_reduction` is "sum",
            where the ranks would add up what each has for the global batch.
        NotImplementedError: The step runs under `jit_compile=True`.

    Example:
    >>> import numpy as np, tarantella as tnt
    >>> tnt.gather_rows(np.ones((4, 2))).shape
    (4, 2)
    """
    step = current_step()
    if step is None or runtime.get_size() == 1:
        return map_with_masks(backend.recorded_or_replayed, structure) if in_trial.get() else structure
    if step.is_sum:
        raise ValueError(
            'tarantella.gather_rows gives every rank the global batch, so tnt_reduction = "sum" of '
            f'{step.model.name} would count its loss once per rank; set tnt_reduction = "mean", whatever the loss is'
        )
    leaves = [each for each in tree.flatten(structure) if each is not None]
    for each in leaves:
        if wrong := backend.why_not_gathered(each):
            raise ValueError(f"tarantella.gather_rows takes tensors with an axis of rows, but a part {wrong}")
    _, whole = backend.gather_rows("tarantella.gather_rows", leaves, None, step.is_empty, step.step_number)
    rest = iter(whole)
    return tree.map_structure(lambda each: None if each is None else next(rest), structure)


def map_with_masks(function: Callable[[Any], Any], structure: Any) -> Any:
    """The structure with `function` of each tensor, and of the mask that Keras has attached to it. None stays None."""

    def mapped(leaf: Any) -> Any:
        if leaf is None:
            return None
        made, mask = function(leaf), private.mask_of(leaf)
        if mask is not None:
            private.set_mask(made, function(mask))
        return made

    return tree.map_structure(mapped, structure)


# MiB of gathered rows on a rank; TNT_GATHER_LIMIT overrides it.
DEFAULT_LIMIT = 256


class Rows(NamedTuple):
    """The labels and predictions of all ranks."""

    counts: Any  # of the rows of each rank
    first: Any  # a part with this rank's
    structure: Any

    def own(self, step: Step, values: Any) -> Any:
        """This rank's part of values: those of its rows where axis 0 is the rows, otherwise all times its fraction."""
        total = ops.sum(self.counts)
        length = values.shape[0]
        if length is not None and (backend.current_trace() is not None or length % int(total)):
            return values * step.fraction(values.dtype)
        before = ops.sum(self.counts[: runtime.get_rank()])
        own = ops.cast(ops.shape(self.first)[0], before.dtype)
        own = own if step.is_empty is None else ops.where(step.is_empty, 0, own)
        each = ops.cast(ops.shape(values)[0], before.dtype) // total
        return values[before * each : (before + own) * each]


def of_all_ranks(step: Step, what: str, structure: Any, replicated: bool = True) -> Rows | None:
    """The structure with the rows of all ranks in the place of this rank's; None where they are not gathered.

    `replicated`: all ranks compute the same of all rows, and each counts its result by its fraction of them (see
    `Backend.gather_rows`).
    """
    leaves = [each for each in tree.flatten(structure) if each is not None]
    if not _can_gather(step, what, leaves):
        return None
    leaves = [ops.convert_to_tensor(each) for each in leaves]
    counts, whole = step.gathered(f"{what} (not gathered if tnt_reduction declares it)", leaves, replicated)
    rest = iter(whole)
    return Rows(counts[0], leaves[0], tree.map_structure(lambda each: None if each is None else next(rest), structure))


def _rank(leaf: Any) -> int:
    shape = getattr(leaf, "shape", None)
    return -1 if shape is None or getattr(shape, "rank", 0) is None else len(shape)


def _can_gather(step: Step, what: str, leaves: list[Any]) -> bool:
    known = model_state.of(step.model).can_gather
    kind = (what, *((type(each), str(getattr(each, "dtype", "")), _rank(each)) for each in leaves))
    if kind not in known:
        reason = _why_not(step, leaves)
        known[kind] = not reason
        if reason:
            log.warn_once(
                f"{what} is computed on each rank's own rows, not on the global batch: {reason}. A scalar for a batch "
                "is taken for a mean over rows; declare tnt_reduction = 'mean' or 'sum'"
            )
    return known[kind]


def _why_not(step: Step, leaves: list[Any]) -> str:
    """The reason of the first rank that has one, "" where none has. Collective."""
    local = _reason(step, leaves)
    own = [] if local else [[_times(each.shape[0], step), *each.shape[1:]] for each in leaves]
    reasons, shapes = zip(*_exchange.gather_json([local, own]), strict=True)
    for rank, reason in enumerate(reasons):
        if reason:
            return reason if all(reasons) else f"on rank {rank} {reason}"
    others = [rank for rank, each in enumerate(shapes) if each != shapes[0]]
    return f"the rows of rank {others[0]} have another shape than those of rank 0" if others else ""


def _times(length: int | None, step: Step) -> int | None:
    """How many times the rows of the batch an axis 0 has, as far as lengths are known; 0 if they do not fit."""
    if length is None:
        return None
    return next((length // rows for rows in step.static_rows if rows and length % rows == 0), 0)


def _reason(step: Step, leaves: list[Any]) -> str:
    wrong = [why for each in leaves if (why := backend.why_not_gathered(each))]
    if wrong:
        return f"a part of the labels or predictions {wrong[0]}"
    if any(_times(each.shape[0], step) == 0 for each in leaves):
        return "axis 0 of a part of the labels or predictions is not the rows"
    rows = model_state.of(step.model).batch_rows
    bytes_of_row = sum(
        int(np.prod([n or 1 for n in each.shape[1:]], dtype=np.int64))
        * np.dtype(keras.backend.standardize_dtype(each.dtype).replace("bfloat16", "float16")).itemsize
        for each in leaves
    )
    limit = integer("TNT_GATHER_LIMIT", DEFAULT_LIMIT)
    if rows is not None and rows * bytes_of_row > limit * 2**20:
        return f"its rows take {rows * bytes_of_row / 2**20:.0f} MiB on each rank, more than TNT_GATHER_LIMIT={limit}"
    return ""
