"""Contexts that announce each call to the ranks in `hvd.join`, so that these can take part in it."""

from __future__ import annotations

import functools
import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._job import groups, runtime

_NEXT = "the next call of hvd"


class Call(NamedTuple):
    """A call that a rank is about to make."""

    what: str
    name: str = ""  # of the tensor or plan, if it has one
    details: tuple[Any, ...] = ()

    def is_possible(self) -> bool:
        """Whether ranks that have joined can take part, with zeros or without rows."""
        if self.what == "allreduce":
            return self.details[2] in ("sum", "average")
        return self.what in ("allgather", "allgatherv", "barrier", "plan", "graphs")

    def __str__(self) -> str:
        return f"allreduce of the {self.details[2]}" if self.what == "allreduce" else self.what


@dataclass
class Record:
    """The calls and plans of a context. A plan is identified by its key, which is its name and its tensors."""

    calls: int = 0  # of this rank, since the last join ended
    # All plans, in the same order on all ranks: the number on this one, and the number of tensors.
    plans: list[tuple[int, int]] = field(default_factory=list)
    # Plans that this rank made for others while it was in join: key and number.
    adopted: list[tuple[Any, int]] = field(default_factory=list)
    # Plans made while any rank was in join, before the end of the last join: key and number.
    made_meanwhile: list[tuple[Any, int]] = field(default_factory=list)
    # Keys of plans of an earlier join that some rank has not used yet.
    awaited: list[Any] = field(default_factory=list)

    def end_join(self, plans: list[tuple[int, int]], unused: set[int]) -> None:
        """Keeps these plans after a join. `unused`: numbers of plans that some rank still has to adopt."""
        numbers = {number for number, _ in plans}
        self.calls, self.plans = 0, plans
        self.adopted = [each for each in self.adopted if each[1] in numbers]
        self.made_meanwhile = [each for each in self.made_meanwhile if each[1] in numbers & unused]
        self.awaited = [key for key, _ in self.made_meanwhile]


# Outlives the groups, which `shutdown` and `init` replace.
_of_job = Record()


class AnnouncedContext:
    """A context of the core that announces its calls. Has the methods that Horovod's API uses.

    Before each blocking call, the ranks exchange a byte: whether they are in join. If any is, the first rank that is
    not broadcasts a description of its call. Steps of plans are not announced.
    """

    def __init__(self, context: Any, ranks: tuple[int, ...]) -> None:
        """`context`: None for the context of the job. `ranks`: its ranks, as ranks of the job."""
        self._of_group, self._ranks = context, ranks
        self.record = _of_job if context is None else Record()

    @property
    def core(self) -> Any:
        """The core's context. Not stored for the job, because TensorFlow keeps objects like this after its end."""
        return runtime.context() if self._of_group is None else self._of_group

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def announce(self, what: str, name: str = "", *details: Any) -> bool:
        """Announces a call. Returns whether a rank is in join. Collective.

        Raises RuntimeError if ranks in join cannot take part in this call.
        """
        self.record.calls += 1
        call = Call(what, name, details)
        try:
            joined = self.exchange_joined(joined=False)
            if not joined.any():
                return False
            call = self.next_call(joined, call)
        except RuntimeError as error:  # the core does not know which call is announced
            made = f"{call}, {name}" if name else call
            raise type(error)(f"{error} (before hvd's {made})") from None
        if not call.is_possible():
            names = ", ".join(str(rank) for rank, has in zip(self._ranks, joined, strict=True) if has)
            subject = f"ranks {names} have" if joined.sum() > 1 else f"rank {names} has"
            raise RuntimeError(
                f"hvd: no {call} is possible now, because {subject} joined (hvd.join), which allows only gradients, "
                "sums, averages and allgather; call it before a rank joins, or after join has returned"
            )
        return True

    def exchange_joined(self, joined: bool) -> NDArray[np.bool_]:
        """Whether each rank is in join. Blocks until all ranks are, or begin their next call."""
        return self.core.allgather(np.array([joined]), _NEXT).ravel()

    def next_call(self, joined: NDArray[np.bool_], call: Call | None = None) -> Call:
        """The call of the first rank that is not in join. Collective."""
        root = int(np.argmin(joined))
        payload = np.frombuffer(pickle.dumps(tuple(call or ())), np.uint8)
        length = int(self.core.broadcast(np.array([len(payload)]), root, _NEXT)[0])
        payload = payload if self.core.rank == root else np.zeros(length, np.uint8)
        return Call(*pickle.loads(self.core.broadcast(payload, root, _NEXT).tobytes()))

    def allreduce(self, array: NDArray[Any], name: str = "", reduction: str = "sum", dtype: str | None = None) -> Any:
        self.announce("allreduce", name, array.dtype.name, array.shape, reduction, dtype)
        return self.core.allreduce(array, name, reduction, dtype)

    def allgather(self, array: NDArray[Any], name: str = "", dtype: str | None = None) -> Any:
        self.announce("allgather", name, array.dtype.name, array.shape, dtype)
        return self.core.allgather(array, name, dtype)

    def allgatherv(self, array: NDArray[Any], name: str = "", dtype: str | None = None) -> Any:
        self.announce("allgatherv", name, array.dtype.name, array.shape[1:], dtype)
        return self.core.allgatherv(array, name, dtype)

    def reduce_scatter(self, *arguments: Any) -> Any:
        self.announce("reducescatter")
        return self.core.reduce_scatter(*arguments)

    def broadcast(self, *arguments: Any) -> Any:
        self.announce("broadcast")
        return self.core.broadcast(*arguments)

    def alltoall(self, *arguments: Any) -> Any:
        self.announce("alltoall")
        return self.core.alltoall(*arguments)

    def barrier(self) -> None:
        self.announce("barrier")
        self.core.barrier()

    def plan(self, name: str, tensors: list[Any], threshold: int, numbers: int = 0) -> int:
        """The plan that this rank has made for others during a join, or a new one. Plans have no numbers of steps.

        Raises RuntimeError for a new plan if another rank would use an older one in its place.
        """
        for place, (key, number) in enumerate(self.record.adopted):
            if key == (name, tensors):
                del self.record.adopted[place]
                return number
        if (name, tensors) in self.record.awaited:
            raise RuntimeError(
                f"hvd: a new plan for {name} ({', '.join(each[0] for each in tensors[:3])}"
                f"{', ...' if len(tensors) > 3 else ''}) looks like that of an older model, which was first trained "
                "while a rank had joined (hvd.join): train each model on every rank before a rank joins, or give its "
                "layers unique names"
            )
        meanwhile = self.announce("plan", name, tensors, threshold)
        return self._new_plan(name, tensors, threshold, meanwhile)

    def _new_plan(self, name: str, tensors: list[Any], threshold: int, meanwhile: bool) -> int:
        number: int = self.core.plan(name, tensors, threshold)
        self.record.plans.append((number, len(tensors)))
        if meanwhile:
            self.record.made_meanwhile.append(((name, tensors), number))
        return number

    def take_part(self, call: Call) -> None:
        """Makes a call of the other ranks, with zeros or without rows."""
        if call.what in ("allreduce", "allgather", "allgatherv"):
            kind, shape, *rest = call.details
            shape = (0, *shape) if call.what == "allgatherv" else shape
            getattr(self.core, call.what)(np.zeros(shape, kind), call.name, *rest)
        elif call.what == "barrier":
            self.core.barrier()
        elif call.what == "plan":
            tensors, threshold = call.details
            number = self._new_plan(call.name, tensors, threshold, meanwhile=True)
            self.record.adopted.append(((call.name, tensors), number))


class Group(groups.Group):
    """A group whose collectives are announced."""

    @functools.cached_property
    def _announcing(self) -> AnnouncedContext:
        return AnnouncedContext(self._context, self.ranks)

    def context(self) -> Any:
        """The `AnnouncedContext` of the group, always the same; None if the job has one rank."""
        return None if super().context() is None else self._announcing

    def announce(self, what: str) -> None:
        """Announces a call that consists of several."""
        context = self.context()
        if context is not None:
            context.announce(what)
