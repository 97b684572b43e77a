"""From the data of a call to this rank's micro batches of it: all ranks must have the same, in the same order."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _exchange
from .._job import log, runtime, timeline
from . import adapter, tf_data
from .input import DataArguments, DistributedInput, input_of, uses_pipelines


def distributed(
    call: str, given: Sequence[DataArguments], model: Any, settings: Sequence[str]
) -> list[DistributedInput]:
    """The inputs of a call, checked and split. Collective.

    If the validation data of a fit are arrays without a batch size, they get that of the training data.
    `settings` is what else must be equal on all ranks, a line each. Raises ValueError for invalid data, and
    MismatchError on all ranks where data or settings differ.
    """
    inputs: list[DistributedInput] = []
    for each in given:
        inputs.append(input_of(_sized_like(inputs[0], each) if inputs else each, model))
    agree(call, [*(line for each in inputs for line in each.lines), *settings])
    if uses_pipelines():
        agree_on_seed()
    if any(each.runs_python for each in inputs):
        agree_on_generators()
    for part in inputs:
        part.split(positions=call == "predict")
    return inputs


def _sized_like(training: DistributedInput, given: DataArguments) -> DataArguments:
    has_size = given.batch_size is not None or given.micro_batch_size is not None
    takes_one = not has_size and adapter.are_arrays((given.x, given.y, given.sample_weight))
    return replace(given, batch_size=training.batch_size) if takes_one else given


@timeline.part("agree on data and arguments")
def agree(call: str, lines: Sequence[str]) -> None:
    """Raises MismatchError on all ranks where these lines, of a call's data and arguments, differ. Collective."""
    _exchange.agree(f"data or arguments of {call}", lines, "pass the same to every rank, which takes its own rows")


@timeline.part("agree on seeds")
def agree_on_seed() -> None:
    """Gives all ranks the master's global seed where theirs differ: they would shuffle differently."""
    seed = tf_data.seeds.global_seed()
    mine = np.array([0 if seed is None else seed, seed is not None], np.int64)
    everyone = runtime.context().allgather(mine, "seeds")
    if (everyone == everyone[0]).all() and everyone[0][1]:
        return
    chosen = int(everyone[0][0]) if everyone[0][1] else tf_data.seeds.DEFAULT_SEED
    log.logger.info("ranks had different seeds; all shuffle with the master's, %d", chosen)
    tf_data.seeds.set_global_seed(chosen)


def agree_on_generators() -> None:
    """Gives all ranks the master's states of the generators that input may draw from: Python's, NumPy's, torch's."""
    torch = sys.modules.get("torch")
    mine = None if torch is None else torch.get_rng_state().numpy()
    states = _exchange.gather_bytes(pickle.dumps((random.getstate(), np.random.get_state(), mine)))
    if states[runtime.get_rank()] != states[0]:
        pythons, numpys, torchs = pickle.loads(states[0])
        random.setstate(pythons)
        np.random.set_state(numpys)
        if torch is not None and torchs is not None:
            torch.set_rng_state(torch.from_numpy(torchs))
