"""The C++ core. One `Context` is one rank of one job; its calls run in the same order on all ranks."""

import builtins
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

class Error(RuntimeError):
    """A job of several ranks cannot go on."""

class PeerLostError(Error):
    """Another rank ended or left."""

class MismatchError(Error):
    """Ranks disagree about what they exchange."""

class TimeoutError(Error, builtins.TimeoutError):
    """A rank did not take part before the deadline."""

class Context:
    """A rank's membership in a job. The constructor blocks until all ranks have met."""

    def __init__(
        self,
        rank: int,
        size: int,
        local_rank: int,
        local_size: int,
        job: str,
        timeout: float = 300.0,
        meet_timeout: float = 60.0,
        grace: float = 3.0,
        warn_every: float = 60.0,
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    def group(self, ranks: Sequence[int]) -> Context | None:
        """A context of some ranks in the order given, None where this rank is not among them. Collective."""
    def allreduce(
        self, array: NDArray[Any], name: str = "", reduction: str = "sum", dtype: str | None = None
    ) -> NDArray[Any]:
        """`dtype` names the type as which the array's bytes are taken, such as "bfloat16" of a uint16 array."""
    def reduce_scatter(
        self, array: NDArray[Any], name: str = "", reduction: str = "sum", dtype: str | None = None
    ) -> NDArray[Any]:
        """This rank's part of the first dimension of the reduction; the number of ranks must divide it."""
    def broadcast(
        self, array: NDArray[Any], root: int = 0, name: str = "", dtype: str | None = None
    ) -> NDArray[Any]: ...
    def allgather(self, array: NDArray[Any], name: str = "", dtype: str | None = None) -> NDArray[Any]:
        """The arrays of all ranks, all of one shape, along a new first dimension."""
    def allgatherv(self, array: NDArray[Any], name: str = "", dtype: str | None = None) -> NDArray[Any]:
        """The rows of all ranks, one after the other; first dimensions may differ."""
    def alltoall(
        self, array: NDArray[Any], splits: Sequence[int], name: str = "", dtype: str | None = None
    ) -> NDArray[Any]:
        """`splits[rank]` rows go to each rank; returns those that came from each, in rank order."""
    def barrier(self) -> None: ...
    def post(self, name: str, result: int) -> None: ...
    def wait_posted(self, rank: int, name: str) -> int: ...
    def plan(self, name: str, tensors: list[tuple[str, str, tuple[int, ...]]], threshold: int) -> int: ...
    def buckets(self, plan: int, tensors: int) -> list[int]: ...
    def release(self, plan: int) -> None: ...
    def trace(self, plan: int) -> list[tuple[int, str, int]]: ...
    def abort(self, reason: str) -> None:
        """This rank fails: calls on other ranks raise PeerLostError with its number and `reason`. Does not block."""
    def failure(self) -> str | None: ...
    def check(self) -> None: ...
    def await_question(self) -> bool:
        """Blocks until another rank asks where this one is; False once the context is closed. One thread."""
    def tell_place(self, place: str) -> None: ...
    def close(self) -> None:
        """Leaves the job. Calls of other threads end with PeerLostError first."""
