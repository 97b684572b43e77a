"""Explains the first difference: its likely cause, from the findings of the experiments, and the cure."""

from __future__ import annotations

from .._job.log import abbreviated
from .compare import Difference

_OF_DIFFERENCES = {
    "steps": (
        "the script takes another number of steps: its batches or epochs depend on the number of ranks, or a callback "
        "stops or starts training by what a rank alone sees",
        "pass the same arguments to fit on any number of ranks; Tarantella distributes the rows",
    ),
    "model": (
        "the model depends on the rank or the number of ranks",
        "build the same model on any number of ranks",
    ),
    "rows": (
        "the script makes the batch depend on the number of ranks, or feeds each rank its own part",
        "pass the global batch size and all data on every rank; Tarantella distributes the rows",
    ),
    "data": (
        "the data differs: it is shuffled, split or generated without a seed, or with a different seed on each rank",
        "use the same seed on all ranks for every shuffle, split and random generator (keras.utils.set_random_seed, "
        "seed=… of a dataset's shuffle)",
    ),
    "rate": (
        "the script makes the learning rate depend on the number of ranks, or a callback sets it by the logs of a "
        "batch, which are each rank's own",
        "use the learning rate of one process: the global batch is the same; wrap such a callback: "
        "tarantella.keras.callbacks.Callback(callback)",
    ),
}

# Each is a sufficient cause. Most likely first: random layers always differ, batch-dependent layers nearly always.
_OF_FINDINGS = {
    "random": (
        "random in training, and each rank draws its own numbers",
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
        "computes other numbers there than on one process, for the same rows and weights",
        "make the model independent of the rank, the number of ranks and the machine",
    ),
    "rounding": (
        "its rounding, which grows with the steps",
        "none needed, this is expected; to verify more steps, train in float64 for this check "
        "(keras.config.set_floatx('float64'))",
    ),
}

SUSPECTS = tuple(_OF_FINDINGS)

# No experiment judges these. The rows of docs/exactness.md say more.
_NOT_EXAMINED = {
    "own step": (
        "is user-defined: what it makes of a rank's own rows other than sums and means over them is that rank's (a "
        "gradient times the loss, a condition on the loss, a counter of rows)",
        "compute it on the rows of all ranks (tarantella.gather_rows); declare tnt_reduction = 'sum' in the class if "
        "its loss is a sum over rows, and only then",
    ),
    "declared": (
        "declares tnt_reduction, which nothing checks",
        "see whether it is that, a mean or a sum over rows",
    ),
    "own optimizer": (
        "is user-defined: random numbers, and what it keeps beside variables, are each rank's own",
        "draw random numbers in train_step, and keep state in the optimizer's variables",
    ),
    "embedding": (
        "gives gradients for single rows, and optimizers treat repeated ones by rules of their own",
        "make what is looked up by positions a weight of a layer; or accept it: the gradient is the same",
    ),
    "own weights": (
        "assigns weights in training, each rank from its own rows",
        "compute them from the rows of all ranks (tarantella.gather_rows); or accept it: floats are averaged",
    ),
}


def explain(difference: Difference, findings: list[tuple[str, str, str]], warnings: list[str]) -> list[str]:
    """Lines that name the likely cause and its cure."""
    if difference.kind in _OF_DIFFERENCES:
        cause, cure = _OF_DIFFERENCES[difference.kind]
        return [f"likely cause: {cause}", f"cure: {cure}"]
    lines: list[str] = []
    unknown = [name for found, name, _ in findings if found == "unknown"]
    for kind, (cause, cure) in _OF_FINDINGS.items():
        names = [name for found, name, _ in findings if found == kind]
        if names:
            title = "also possible" if lines else "likely cause"
            lines += [f"{title}: {abbreviated(names)}: {cause}", f"cure: {cure}"]
    if not lines:
        lines = _not_examined(findings)
        if warnings:
            lines.insert(0, "likely cause: see the warnings of Tarantella")
        elif unknown:
            lines.insert(0, f"likely cause: not found: the experiment on this batch failed ({unknown[0]})")
        elif lines:
            lines.append("callbacks that change weights or optimizers were not examined either")
        else:
            lines = [
                "likely cause: none found: no layer is random or batch-dependent, the loss is a mean over rows, and "
                "step, loss and optimizer are Keras's; callbacks were not examined"
            ]
    return lines + [f"warning of Tarantella: {warning}" for warning in warnings]


def _not_examined(findings: list[tuple[str, str, str]]) -> list[str]:
    lines = []
    for kind, (cause, cure) in _NOT_EXAMINED.items():
        names = [name for found, name, _ in findings if found == kind]
        if names:
            lines += [f"possible cause: {abbreviated(names)}: {cause}", f"cure: {cure}"]
    return lines
