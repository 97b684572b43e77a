"""Contexts that tell ranks that have joined (`hvd.join`) which call comes next, so that they can take part in it."""

from __future__ import annotations

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
    details: tuple[Any, ...] = ()

    def is_possible(self) -> bool:
        """Whether ranks that have joined can take part, with zeros or without rows."""
        if self.what == "allreduce":
            return self.details[3] in ("sum", "average")
        return self.what in ("allgather", "allgatherv", "barrier", "plan", "graphs")

    def name(self) -> str:
        """Of what it is made: "" where the call has no name."""
        place = {"allreduce": 2, "allgather": 2, "allgatherv": 2, "plan": 0}.get(self.what)
        return "" if place is None else self.details[place]

    def __str__(self) -> str:
        return f"allreduce of the {self.details[3]}" if self.what == "allreduce" else self.what


@dataclass
class Record:
    """What was done in a context."""

    calls: int = 0  # of this rank, since all ranks have joined
    # All plans, in the order of all ranks: the number on this one, and of how many tensors.
    plans: list[tuple[int, int]] = field(default_factory=list)
    # Those that were made for others while this rank had joined: what, and the number.
    adopted: list[tuple[Any, int]] = field(default_factory=list)
    # Those that were made while any rank had joined, before the end of the last join: what, and the number.
    made_meanwhile: list[tuple[Any, int]] = field(default_factory=list)
    # Of an earlier join, and not used yet by all ranks: what.
    awaited: list[Any] = field(default_factory=list)

    def go_on(self, plans: list[tuple[int, int]], unused: set[int]) -> None:
        """From the end of a join on, with these of the plans. `unused`: those that some rank still has to adopt."""
        numbers = {number for number, _ in plans}
        self.calls, self.plans = 0, plans
        self.adopted = [each for each in self.adopted if each[1] in numbers]
        self.made_meanwhile = [each for each in self.made_meanwhile if each[1] in numbers & unused]
        self.awaited = [what for what, _ in self.made_meanwhile]


# Lives on where `shutdown` and `init` make new groups.
_of_job = Record()


class Channel:
    """A context of the core whose calls are announced: it has the methods that Horovod's API uses.

    Before each call that blocks, the ranks tell one another whether they have joined. While none has, that costs a byte
    a rank; otherwise the first of the others tells the call. The steps of plans need no word.
    """

    def __init__(self, own: Any, ranks: tuple[int, ...]) -> None:
        """`own`: the context, None for that of the job. `ranks`: the numbers in the job of its ranks."""
        self._own, self._ranks = own, ranks
        self.record = _of_job if own is None else Record()

    @property
    def context(self) -> Any:
        """Asked for each time: TensorFlow keeps what uses a channel, but the job's context must end with the job."""
        return runtime.context() if self._own is None else self._own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)

    def announce(self, what: str, *details: Any) -> bool:
        """Whether a rank has joined. Raises RuntimeError if it cannot take part in this call. Collective."""
        self.record.calls += 1
        call = Call(what, details)
        try:
            joined = self.meet(joined=False)
            if not joined.any():
                return False
            call = self.next_call(joined, call)
        except RuntimeError as error:  # the core knows no more than that a call comes
            made = f"{call}, {call.name()}" if call.name() else call
            raise type(error)(f"{error} (before hvd's {made})") from None
        if not call.is_possible():
            names = ", ".join(str(rank) for rank, has in zip(self._ranks, joined, strict=True) if has)
            raise RuntimeError(
                f"hvd: no {call} is possible now, because rank{'s' if joined.sum() > 1 else ''} {names} "
                f"{'have' if joined.sum() > 1 else 'has'} joined (hvd.join): only gradients, sums, averages and "
                "allgather are; do this before a rank joins, or when join has returned"
            )
        return True

    def meet(self, joined: bool) -> NDArray[np.bool_]:
        """Which ranks have joined. Blocks until each comes to its next call, or has joined."""
        return self.context.allgather(np.array([joined]), _NEXT).ravel()

    def next_call(self, joined: NDArray[np.bool_], call: Call | None = None) -> Call:
        """The call of the first rank that has not joined. Collective."""
        root = int(np.argmin(joined))
        payload = np.frombuffer(pickle.dumps(tuple(call or ())), np.uint8)
        length = int(self.context.broadcast(np.array([len(payload)]), root, _NEXT)[0])
        payload = payload if self.context.rank == root else np.zeros(length, np.uint8)
        return Call(*pickle.loads(self.context.broadcast(payload, root, _NEXT).tobytes()))

    def allreduce(self, array: NDArray[Any], name: str = "", reduction: str = "sum", dtype: str | None = None) -> Any:
        self.announce("allreduce", array.dtype.name, array.shape, name, reduction, dtype)
        return self.context.allreduce(array, name, reduction, dtype)

    def allgather(self, array: NDArray[Any], name: str = "", dtype: str | None = None) -> Any:
        self.announce("allgather", array.dtype.name, array.shape, name, dtype)
        return self.context.allgather(array, name, dtype)

    def allgatherv(self, array: NDArray[Any], name: str = "", dtype: str | None = None) -> Any:
        self.announce("allgatherv", array.dtype.name, array.shape[1:], name, dtype)
        return self.context.allgatherv(array, name, dtype)

    def reduce_scatter(self, *arguments: Any) -> Any:
        self.announce("reducescatter")
        return self.context.reduce_scatter(*arguments)

    def broadcast(self, *arguments: Any) -> Any:
        self.announce("broadcast")
        return self.context.broadcast(*arguments)

    def alltoall(self, *arguments: Any) -> Any:
        self.announce("alltoall")
        return self.context.alltoall(*arguments)

    def barrier(self) -> None:
        self.announce("barrier")
        self.context.barrier()

    def plan(self, name: str, tensors: list[Any], threshold: int, numbers: int = 0) -> int:
        """One without numbers of steps that this rank has made for others while it had joined, or a new one.

        Raises RuntimeError for a new one where another rank would take an older one in its place.
        """
        for place, (made, number) in enumerate(self.record.adopted):
            if made == (name, tensors):
                del self.record.adopted[place]
                return number
        if (name, tensors) in self.record.awaited:
            raise RuntimeError(
                f"hvd: a new plan for {name} ({', '.join(each[0] for each in tensors[:3])}"
                f"{', ...' if len(tensors) > 3 else ''}) cannot be told from an older model's, which was first trained "
                "while a rank had joined (hvd.join): train each model on every rank before one joins, or give its "
                "layers names of their own"
            )
        meanwhile = self.announce("plan", name, tensors, threshold)
        return self._new_plan(name, tensors, threshold, meanwhile)

    def _new_plan(self, name: str, tensors: list[Any], threshold: int, meanwhile: bool) -> int:
        number: int = self.context.plan(name, tensors, threshold)
        self.record.plans.append((number, len(tensors)))
        if meanwhile:
            self.record.made_meanwhile.append(((name, tensors), number))
        return number

    def take_part(self, call: Call) -> None:
        """Makes a possible call of the others, with zeros or without rows."""
        if call.what == "allreduce":
            kind, shape, *rest = call.details
            self.context.allreduce(np.zeros(shape, kind), *rest)
        elif call.what == "allgather":
            kind, shape, *rest = call.details
            self.context.allgather(np.zeros(shape, kind), *rest)
        elif call.what == "allgatherv":
            kind, row, *rest = call.details
            self.context.allgatherv(np.zeros((0, *row), kind), *rest)
        elif call.what == "barrier":
            self.context.barrier()
        elif call.what == "plan":
            name, tensors, threshold = call.details
            self.record.adopted.append(((name, tensors), self._new_plan(name, tensors, threshold, meanwhile=True)))


class Group(groups.Group):
    """A group whose collectives are announced."""

    def __init__(self, ranks: Any = None) -> None:
        super().__init__(ranks)
        self._channel: Channel | None = None

    def context(self) -> Any:
        """The group's one `Channel`; None if the job has one rank."""
        if self._channel is None and super().context() is not None:
            self._channel = Channel(self._context, self.ranks)
        return self._channel

    def announce(self, what: str) -> None:
        """`Channel.announce`, for a call that consists of several."""
        channel = self.context()
        if channel is not None:
            channel.announce(what)
