"""Explains the first difference: its likely cause, from the findings of the experiments, and the cure."""

from __future__ import annotations

from collections.abc import Iterator

from .._job.log import abbreviated
from .compare import Difference

_OF_DIFFERENCES = {
    "steps": (
        "the number of steps depends on the number of ranks: through batches or epochs of the script, or a callback "
        "that stops or starts training by values of a single rank",
        "pass the same arguments to fit on any number of ranks; Tarantella distributes the rows",
    ),
    "model": (
        "the model depends on the rank or the number of ranks",
        "build the same model on any number of ranks",
    ),
    "rows": (
        "the script makes the batch depend on the number of ranks, or feeds each rank a part of the data",
        "pass the global batch size and all data on every rank; Tarantella distributes the rows",
    ),
    "data": (
        "the data differs: it is shuffled, split or generated without a seed, or with a different seed on each rank",
        "use the same seed on all ranks for every shuffle, split and random generator (keras.utils.set_random_seed, "
        "seed=… of a dataset's shuffle)",
    ),
    "rate": (
        "the script makes the learning rate depend on the number of ranks, or a callback sets it by the logs of a "
        "batch, which differ between ranks",
        "use the learning rate of one process: the global batch is the same; wrap such a callback: "
        "tarantella.keras.callbacks.Callback(callback)",
    ),
}

# Each is a sufficient cause, the most likely first: random layers always differ, batch-dependent layers nearly always.
_OF_FINDINGS = {
    "random": (
        "random in training, and each rank draws different numbers",
        "none needed, this is expected; to verify everything else, switch it off for this check (rate 0)",
    ),
    "coupled": (
        "depends on which rows share a batch, and each rank has a part of the rows",
        "compute each row by itself; for BatchNormalization use synchronized=True, or normalize single rows "
        "(LayerNormalization, GroupNormalization); or accept it: training works, with smaller batches",
    ),
    "coupled loss": (
        "depends on which rows share a batch, and each rank has a part of the rows",
        "use a loss that is a mean over rows, or compute it on the rows of all ranks (tarantella.gather_rows); or "
        "accept it: each rank minimizes it on its own rows",
    ),
    "sum": (
        "is a sum over rows, not a mean",
        "return one value per row (in a keras.losses.Loss, whose reduction combines them), or the mean",
    ),
    "rank": (
        "computes other numbers there than on one process, from the same rows and weights",
        "make the model independent of the rank, the number of ranks and the machine",
    ),
    "rounding": (
        "its rounding, which grows with the steps",
        "none needed, this is expected; to verify more steps, train in float64 for this check "
        "(keras.config.set_floatx('float64'))",
    ),
}

SUSPECTS = tuple(_OF_FINDINGS)

# No experiment examines these. See docs/exactness.md.
_NOT_EXAMINED = {
    "own step": (
        "is user-defined: values that it computes from the rows of a rank, other than sums and means over them, differ "
        "between ranks (a gradient times the loss, a condition on the loss, a counter of rows)",
        "compute it on the rows of all ranks (tarantella.gather_rows); declare tnt_reduction = 'sum' in the class if "
        "its loss is a sum over rows, and only then",
    ),
    "declared": (
        "declares tnt_reduction, which is not checked",
        "check that it is the declared mean or sum over rows",
    ),
    "own optimizer": (
        "is user-defined: its random numbers, and its state outside of variables, differ between ranks",
        "draw random numbers in train_step, and keep state in the optimizer's variables",
    ),
    "embedding": (
        "has sparse gradients, whose repeated rows optimizers treat in a special way",
        "for positions use a weight of a layer in place of an Embedding; or accept it: the gradient is the same",
    ),
    "own weights": (
        "assigns weights in training, on each rank from the rows of that rank",
        "compute them from the rows of all ranks (tarantella.gather_rows); or accept it: floats are averaged",
    ),
}


def explain(difference: Difference, findings: list[tuple[str, str, str]], warnings: list[str]) -> list[str]:
    """Lines that name the likely cause and its cure."""
    if difference.kind in _OF_DIFFERENCES:
        cause, cure = _OF_DIFFERENCES[difference.kind]
        return [f"likely cause: {cause}", f"cure: {cure}"]
    lines: list[str] = []
    for names, cause, cure in _matching(_OF_FINDINGS, findings):
        lines += [f"{'also possible' if lines else 'likely cause'}: {names}: {cause}", f"cure: {cure}"]
    if not lines:
        for names, cause, cure in _matching(_NOT_EXAMINED, findings):
            lines += [f"possible cause: {names}: {cause}", f"cure: {cure}"]
        error = next((name for kind, name, _ in findings if kind == "unknown"), None)
        if warnings:
            lines.insert(0, "likely cause: see the warnings of Tarantella")
        elif error:
            lines.insert(0, f"likely cause: not found: the experiment on this batch failed ({error})")
        elif lines:
            lines.append("callbacks that change weights or optimizers were not examined either")
        else:
            lines = [
                "likely cause: none found: no layer is random or batch-dependent, the loss is a mean over rows, and "
                "step, loss and optimizer are Keras's; callbacks were not examined"
            ]
    return lines + [f"warning of Tarantella: {warning}" for warning in warnings]


def _matching(table: dict[str, tuple[str, str]], findings: list[tuple[str, str, str]]) -> Iterator[tuple[str, ...]]:
    """The names of the findings of each kind in the table, with cause and cure."""
    for kind, (cause, cure) in table.items():
        if names := [name for found, name, _ in findings if found == kind]:
            yield abbreviated(names), cause, cure
