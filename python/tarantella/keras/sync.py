"""Making ranks start alike: the same variables, the same values, the same seeds. All calls are collective."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _log, _runtime
from .._backend import tensorflow as backend
from .._errors import MismatchError
from .._names import described
from . import flat

# Bytes that one broadcast carries at most: bounds the memory for copies.
_CHUNK = 64 * 2**20
_SEED_STEP = 0x9E3779B1


def gather_bytes(payload: bytes) -> list[bytes]:
    """The payloads of all ranks, in rank order."""
    context = _runtime.context()
    lengths = context.allgather(np.array([len(payload)], np.int64), "lengths").ravel()
    joined = context.allgatherv(np.frombuffer(payload, np.uint8), "bytes")
    return [part.tobytes() for part in np.split(joined, np.cumsum(lengths)[:-1])]


def agree(what: str, lines: Sequence[str], cure: str) -> None:
    """Raises MismatchError on all ranks, naming the first line that differs, unless all ranks are alike."""
    text = "\n".join(lines).encode()
    digest = np.frombuffer(hashlib.sha256(text).digest(), np.int64)
    digests = _runtime.context().allgather(digest, f"compare {what}")
    if (digests == digests[0]).all():
        return
    descriptions = [payload.decode().split("\n") for payload in gather_bytes(text)]
    master = descriptions[0]
    others = [rank for rank, description in enumerate(descriptions) if description != master]
    mine = descriptions[others[0]]
    place = next((i for i, (a, b) in enumerate(zip(master, mine, strict=False)) if a != b), min(len(master), len(mine)))
    first = [d[place] if place < len(d) else "no more" for d in (master, mine)]
    ranks = f"rank {others[0]}" if len(others) == 1 else f"ranks {', '.join(map(str, others))}"
    verb = "differs" if len(others) == 1 else "differ"
    raise MismatchError(
        f"{ranks} {verb} from rank 0 in {what}: rank 0 has {first[0]}, rank {others[0]} has {first[1]} "
        f"({len(master)} and {len(mine)} in all); {cure}"
    )


def _optimizer_variables(model: Any) -> list[Any]:
    from .optimizer import outermost

    return [variable for each in outermost(model) if each.built for variable in each.variables]


def variables(model: Any, optimizers: bool = True) -> list[Any]:
    """All variables that must start alike, each once: the model's and, if wanted, those of its optimizers."""
    unique = {id(v): v for v in [*model.variables, *(_optimizer_variables(model) if optimizers else ())]}
    return list(unique.values())


def _is_seed(variable: Any) -> bool:
    return bool(variable.name == "seed_generator_state")


def agree_on_variables(model: Any, optimizers: bool = True) -> None:
    """Raises MismatchError where the variables of the ranks differ in number, name, shape or type."""
    trainable = {id(v) for v in model.trainable_variables}
    lines = [described(v) + ("" if id(v) in trainable else " not trainable") for v in model.variables]
    agree("the model's variables", lines, "build the same model on every rank")
    if optimizers:
        lines = [described(v) for v in _optimizer_variables(model)]
        agree("the optimizer's variables", lines, "compile with the same optimizer on every rank")


def differing(every: Sequence[Any]) -> list[Any]:
    """Those of the variables, alike in number and shape, whose bits are not the same on all ranks. Collective."""
    if not every or not _differ([backend.checksum(every)]).any():
        return []
    return list(itertools.compress(every, _differ([backend.checksum([v]) for v in every])))


def _differ(checksums: list[int]) -> NDArray[np.bool_]:
    everyone = _runtime.context().allgather(np.array(checksums, np.int64), "checksums of variables")
    differ: NDArray[np.bool_] = (everyone != everyone[0]).any(axis=0)
    return differ


def broadcast(every: Iterable[Any]) -> None:
    """Gives these variables the master's values; generators of random numbers get a stream of their own a rank.

    Only those travel that differ, and the generators' states, which do.
    """
    every = list(every)
    seeds = [v for v in every if _is_seed(v)]
    _send([*differing([v for v in every if not _is_seed(v)]), *seeds])


def _send(every: list[Any]) -> None:
    rank = _runtime.get_rank()
    for group in _groups(every):
        values = [np.ascontiguousarray(np.asarray(v)) for v in group]
        raw = [value.reshape(-1).view(np.uint8) for value in values]  # bytes travel, whatever the type
        received = _runtime.context().broadcast(np.concatenate(raw), 0, "variables")
        if rank == 0:
            continue
        for variable, value, part in zip(group, values, flat.cut(received, raw), strict=True):
            new = part.copy().view(value.dtype).reshape(tuple(variable.shape))
            variable.assign(fold(new, rank) if _is_seed(variable) else new)


def _groups(every: Iterable[Any]) -> Iterable[list[Any]]:
    group: list[Any] = []
    size = 0
    for variable in every:
        group.append(variable)
        size += int(np.prod(variable.shape)) * 8
        if size >= _CHUNK:
            yield group
            group, size = [], 0
    if group:
        yield group


def fold(state: NDArray[Any], rank: int) -> NDArray[Any]:
    """The state of a generator for a rank: the master's own for rank 0, another stream for each other one."""
    folded = state.copy()
    folded[0] = (int(folded[0]) + rank * _SEED_STEP) % 2**31 if rank else folded[0]
    return folded


def agree_on_seed() -> None:
    """Gives all ranks the master's global seed where theirs differ: they would shuffle differently."""
    seed = backend.global_seed()
    mine = np.array([0 if seed is None else seed, seed is not None], np.int64)
    seeds = _runtime.context().allgather(mine, "seeds")
    if (seeds == seeds[0]).all() and seeds[0][1]:
        return
    from .._seeds import DEFAULT_SEED

    chosen = int(seeds[0][0]) if seeds[0][1] else DEFAULT_SEED
    _log.logger.info("ranks had different seeds; all shuffle with the master's, %d", chosen)
    backend.set_global_seed(chosen)


def agree_on_generators() -> None:
    """Gives all ranks the master's states of the generators that input may draw from: Python's, NumPy's, torch's."""
    torch = sys.modules.get("torch")
    mine = None if torch is None else torch.get_rng_state().numpy()
    states = gather_bytes(pickle.dumps((random.getstate(), np.random.get_state(), mine)))
    if states[_runtime.get_rank()] != states[0]:
        pythons, numpys, torchs = pickle.loads(states[0])
        random.setstate(pythons)
        np.random.set_state(numpys)
        if torch is not None and torchs is not None:
            torch.set_rng_state(torch.from_numpy(torchs))
