"""The rows of all ranks, for what looks across rows of the global batch."""

from __future__ import annotations

from typing import Any

from keras import tree

from ..._backend import backend
from ..._job import runtime
from . import trial
from .step import current_step


def gather_rows(structure: Any) -> Any:
    """Returns the rows of all ranks, in the order of the global batch, for a step that looks across rows.

    `structure` is a tensor, or a structure of tensors, with as many rows (axis 0) each; the result has the same
    structure. A loss that is computed with them needs nothing else, be it one number for the global batch, as in SimCLR
    or CLIP, or a mean over this rank's rows: gradients and logs are those of one process. On one rank, and outside of a
    distributed `train_step` or `test_step`, it returns the tensors as they are.

    Raises ValueError for a value without an axis 0, for one that is no dense tensor of numbers (None stays None), and
    where the model's `tnt_reduction` is "sum": the ranks would add up what each has for the global batch. Raises
    NotImplementedError under `jit_compile=True`. Collective: all ranks call it as often in each step. MismatchError
    ends the job where their rows differ in type or shape.
    """
    step = current_step()
    if step is None or runtime.get_size() == 1:
        return trial.gathered(structure)
    if step.is_sum:
        raise ValueError(
            f'tarantella.gather_rows gives the global batch to each rank, and with tnt_reduction = "sum" of '
            f'{step.model.name} what they compute is added up; set tnt_reduction = "mean", whatever the loss is'
        )
    leaves = [each for each in tree.flatten(structure) if each is not None]
    for each in leaves:
        if wrong := backend.why_not_gathered(each):
            raise ValueError(f"tarantella.gather_rows takes tensors with an axis of rows, and a part {wrong}")
    _, whole = backend.gather_rows("tarantella.gather_rows", leaves, None, step.empty, step.step_number)
    rest = iter(whole)
    return tree.map_structure(lambda each: None if each is None else next(rest), structure)
