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

    A loss that is computed with them needs nothing else, be it one number for the global batch, as in SimCLR or CLIP,
    or a mean over this rank's rows: gradients and logs are those of one process. Collective: all ranks call it equally
    often in each step. MismatchError ends the job where their rows differ in type or shape.

    Args:
        structure: A dense tensor of numbers, or a structure of them, with equally many rows (axis 0). None stays None.

    Returns:
        The same structure, with the rows of all ranks. On one rank, and outside of a distributed `train_step` or
        `test_step`, the tensors as they are.

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
