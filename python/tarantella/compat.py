"""The classes and functions of Tarantella 0.9 that new programs do not need.

Its classes for collectives call the functions of the same names, with the same inputs, results and errors. New programs
call `tnt.allreduce(x)`. `ParallelStrategy` supports only its default. YAML is the format of Keras 2; Keras 3 and
`Model.to_json` write JSON.
"""

from __future__ import annotations

import enum
import importlib
import json
from typing import Any

from . import collectives
from ._job.groups import Group, barrier
from .collectives import ReductionOp


class _Collective:
    def __init__(self, group: Group | None = None) -> None:
        self.group = group or Group()


class _Reduction(_Collective):
    def __init__(self, group: Group | None = None, op: ReductionOp = ReductionOp.SUM) -> None:
        super().__init__(group)
        self.op = ReductionOp(op)


class Allreduce(_Reduction):
    """`Allreduce(group, op).execute(inputs)` is `tnt.allreduce(inputs, op, group)`."""

    def check(self, inputs: Any) -> None:
        """Raises TypeError for inputs that cannot be reduced. Does not communicate."""
        collectives.check_reduction(inputs, self.op)

    def execute(self, inputs: Any) -> Any:
        """Blocks until all ranks of the group have called this."""
        return collectives.allreduce(inputs, self.op, self.group)


class Broadcast(_Collective):
    """`Broadcast(group, root_rank).execute(inputs)` is `tnt.broadcast(inputs, root_rank, group)`."""

    def __init__(self, group: Group | None = None, root_rank: int | None = None) -> None:
        """Raises ValueError if `root_rank` is not in the group."""
        super().__init__(group)
        self.root = 0 if root_rank is None else self.group.to_group_rank(root_rank)

    def execute(self, inputs: Any) -> Any:
        """Blocks until all ranks of the group have called this."""
        return collectives.broadcast(inputs, self.group.to_global_rank(self.root), self.group)


class Allgatherv(_Collective):
    """`Allgatherv(group).execute(inputs)` is `tnt.allgather(inputs, group)`."""

    def execute(self, inputs: Any) -> Any:
        """Blocks until all ranks of the group have called this."""
        return collectives.allgather(inputs, self.group)


class ReduceScatter(_Reduction):
    """`ReduceScatter(group, op).execute(inputs)` is `tnt.reduce_scatter(inputs, op, group)`."""

    def execute(self, inputs: Any) -> Any:
        """Blocks until all ranks of the group have called this."""
        return collectives.reduce_scatter(inputs, self.op, self.group)


class Alltoall(_Collective):
    """`Alltoall(group).execute(inputs, splits)` is `tnt.alltoall(inputs, splits, group)`."""

    def execute(self, inputs: Any, splits: Any) -> Any:
        """Blocks until all ranks of the group have called this."""
        return collectives.alltoall(inputs, splits, self.group)


class Barrier(_Collective):
    """`Barrier(group).execute()` is `tnt.barrier(group)`."""

    def execute(self) -> None:
        """Blocks until all ranks of the group have called this."""
        barrier(self.group)

    __call__ = execute


class TensorAllreducer:
    """`TensorAllreducer(inputs).allreduce(inputs)` is `tnt.allreduce(inputs)`."""

    def __init__(self, inputs: Any, group: Group | None = None, op: ReductionOp = ReductionOp.SUM) -> None:
        """Raises TypeError for unsupported inputs. Does not communicate."""
        self._allreduce = Allreduce(group, op)
        self._allreduce.check(inputs)

    def allreduce(self, inputs: Any) -> Any:
        """Reduces each value in `inputs` over the ranks."""
        return self._allreduce.execute(inputs)


class TensorBroadcaster:
    """`TensorBroadcaster(inputs, root_rank).broadcast(inputs)` is `tnt.broadcast(inputs, root_rank)`."""

    def __init__(self, inputs: Any, root_rank: int | None = None, group: Group | None = None) -> None:
        """Raises TypeError for unsupported inputs. Does not communicate."""
        collectives.check_kinds(inputs)
        self._inputs = inputs
        self._broadcast = Broadcast(group, root_rank)

    def broadcast(self, inputs: Any = None) -> Any:
        """Returns the root's `inputs`, by default those of the constructor."""
        return self._broadcast.execute(self._inputs if inputs is None else inputs)


class TensorAllgatherer:
    """`TensorAllgatherer(inputs).allgather(inputs)` is `tnt.allgather(inputs)`."""

    def __init__(self, inputs: Any, group: Group | None = None) -> None:
        """Raises TypeError for unsupported inputs. Does not communicate."""
        collectives.check_kinds(inputs)
        self._allgather = Allgatherv(group)

    def allgather(self, inputs: Any) -> Any:
        """The rows of all ranks, in rank order."""
        return self._allgather.execute(inputs)


class ParallelStrategy(enum.Flag):
    """How `tarantella.Model` distributes a model: by data, in a pipeline, or both (`ALL`)."""

    NONE = 0
    DATA = enum.auto()
    PIPELINING = enum.auto()
    ALL = DATA | PIPELINING


def check_strategy(strategy: object) -> ParallelStrategy:
    """Returns `strategy` if it can be used.

    Raises TypeError for anything except a `ParallelStrategy`, NotImplementedError for pipelining.
    """
    if not isinstance(strategy, ParallelStrategy):
        raise TypeError(
            f"parallel_strategy must be a tarantella.ParallelStrategy, such as ParallelStrategy.DATA (got {strategy!r})"
        )
    if strategy & ParallelStrategy.PIPELINING:
        raise NotImplementedError(
            f"ParallelStrategy.{strategy.name} needs pipelining, which is not available yet; use ParallelStrategy.DATA"
        )
    return strategy


def to_yaml(model: Any, **kwargs: Any) -> str:
    """The output of `model.to_json()` as YAML; `kwargs` are those of `yaml.safe_dump`.

    Raises ImportError if PyYAML is not installed.
    """
    text: str = _yaml("to_yaml").safe_dump(json.loads(model.to_json()), **{"sort_keys": False, **kwargs})
    return text


def json_of_yaml(yaml_string: str) -> str:
    """Converts the output of `to_yaml` to JSON. Reads plain values only, so no text can run code.

    Raises ImportError if PyYAML is not installed, ValueError for YAML that does not describe a model or contains Python
    objects, as files of Keras 2 may.
    """
    yaml = _yaml("model_from_yaml")
    try:
        description = yaml.safe_load(yaml_string)
    except yaml.YAMLError as error:
        raise ValueError(
            f"model_from_yaml reads the output of tarantella.Model.to_yaml, without Python objects: {error}"
        ) from error
    if not isinstance(description, dict):
        raise ValueError(
            f"model_from_yaml needs the output of tarantella.Model.to_yaml; this text does not describe a model "
            f"({yaml_string[:80]!r})"
        )
    return json.dumps(description)


def _yaml(name: str) -> Any:
    """PyYAML, which `name` needs. Raises ImportError if it is not installed."""
    try:
        return importlib.import_module("yaml")
    except ImportError as error:
        other = name.replace("yaml", "json")
        raise type(error)(f"{name} needs PyYAML: pip install pyyaml (or use {other})") from error
