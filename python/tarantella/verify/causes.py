"""From the first difference, and what was found out about it, to the likely cause and its cure."""

from __future__ import annotations

from .._job.log import listed
from .compare import Difference

_OF_DIFFERENCES = {
    "steps": (
        "the script takes other steps on ranks: its number of batches or epochs depends on the number of ranks",
        "give fit the same arguments on any number of ranks, Tarantella deals out the rows",
    ),
    "model": (
        "the script builds another model on ranks",
        "build the same model on any number of ranks",
    ),
    "rows": (
        "the script makes the batch depend on the number of ranks, or feeds each rank its own part",
        "pass the global batch size and all data on every rank, Tarantella deals out the rows",
    ),
    "data": (
        "data that differ: shuffled, split or invented without a seed or with one of the rank's own",
        "seed every shuffle, split and generator of random data alike on all ranks (keras.utils.set_random_seed, "
        "seed=… of a dataset's shuffle)",
    ),
    "rate": (
        "the script makes the learning rate depend on the number of ranks",
        "leave it as it is on one process: the batch is the global one",
    ),
}

# Of which one is enough. Most likely first: what is random always differs, what couples rows nearly always.
_OF_FINDINGS = {
    "random": (
        "random in training, and each rank draws numbers of its own",
        "nothing needs to be cured, this is as designed; to verify all else, switch it off (rate 0) for the moment",
    ),
    "coupled": (
        "depends on which rows share a batch, and each rank has a part of the rows",
        "compute each row by itself; for BatchNormalization synchronized=True, or a normalization of single rows "
        "(Layer-, GroupNormalization); or accept it: training works, on smaller batches",
    ),
    "coupled loss": (
        "depends on which rows share a batch, and each rank has a part of the rows",
        "a loss that is a mean over rows; or accept it: each rank minimizes it on its own rows",
    ),
    "sum": (
        "is a sum over rows, not a mean",
        "return one value a row (in a keras.losses.Loss, whose reduction says how they combine), or the mean",
    ),
    "rank": (
        "gives other numbers there than on one process, for the same rows and weights",
        "keep the rank, the number of ranks and what differs between machines out of the model",
    ),
}

SUSPECTS = tuple(_OF_FINDINGS)


def explain(difference: Difference, findings: list[tuple[str, str, str]], warnings: list[str]) -> list[str]:
    """Lines about the likely cause and its cure."""
    if difference.kind in _OF_DIFFERENCES:
        cause, cure = _OF_DIFFERENCES[difference.kind]
        return [f"likely cause: {cause}", f"cure: {cure}"]
    lines: list[str] = []
    unknown = [name for found, name, _ in findings if found == "unknown"]
    for kind, (cause, cure) in _OF_FINDINGS.items():
        names = [name for found, name, _ in findings if found == kind]
        if names:
            title = "also possible" if lines else "likely cause"
            lines += [f"{title}: {listed(names)}: {cause}", f"cure: {cure}"]
    if not lines and warnings:
        lines = ["likely cause: what Tarantella itself has warned about"]
    elif not lines and unknown:
        lines = [f"likely cause: not found: the experiment on this batch failed ({unknown[0]})"]
    elif not lines:
        lines = [
            "likely cause: none found: no layer is random or couples rows, and the loss is a mean over rows; "
            "a train_step, callback or optimizer of the script's own was not looked into"
        ]
    return lines + [f"Tarantella has warned: {warning}" for warning in warnings]
