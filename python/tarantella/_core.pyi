"""The C++ core. One `Context` is one rank of one job; its calls run in the same order on all ranks."""

import builtins
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

__version__: str

def checksum(bytes: NDArray[Any]) -> int:
    """A checksum, of 64 bits, of contiguous bytes, which must be of the type uint8. Releases the GIL."""

class Error(RuntimeError):
    """A job of several ranks cannot continue."""

class PeerLostError(Error):
    """Another rank ended or left."""

class MismatchError(Error):
    """Ranks make different calls, or exchange different shapes, dtypes or models."""

class TimeoutError(Error, builtins.TimeoutError):
    """A rank did not take part before the deadline."""

class ZeroContributions:
    """Zeros in the place of this rank's tensors of a plan, until `stop`."""

    @property
    def before(self) -> list[int]:
        """In how many steps of the plan this rank had submitted each tensor."""
    def stop(self) -> list[int]:
        """In how many it has by now, zeros included: chance decides it on each rank. Does not block."""

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
        failure_delay: float = 3.0,
        warn_every: float = 60.0,
        stall_timeout: float = 0.0,
        nodes: str = "",
        transport: str = "",
        first_host: str = "",
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def number(self) -> int:
        """What names the context in this process, for operations of a graph."""
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    def group(self, ranks: Sequence[int]) -> Context | None:
        """A context of some ranks in the given order, None if this rank is not among them. Collective."""
    def allreduce(
        self, array: NDArray[Any], name: str = "", reduction: str = "sum", dtype: str | None = None
    ) -> NDArray[Any]:
        """`dtype` is the type as which the array's bytes are read, such as "bfloat16" for a uint16 array."""
    def reduce_scatter(
        self, array: NDArray[Any], name: str = "", reduction: str = "sum", dtype: str | None = None
    ) -> NDArray[Any]:
        """This rank's part of the first dimension of the reduction; the number of ranks must divide it.

        The package itself has no caller yet: it is for `reducescatter` of the drop-in for Horovod.
        """
    def broadcast(
        self, array: NDArray[Any], root: int = 0, name: str = "", dtype: str | None = None
    ) -> NDArray[Any]: ...
    def allgather(self, array: NDArray[Any], name: str = "", dtype: str | None = None) -> NDArray[Any]:
        """Stacks the arrays of all ranks, which have the same shape, along a new first dimension."""
    def allgatherv(self, array: NDArray[Any], name: str = "", dtype: str | None = None) -> NDArray[Any]:
        """Concatenates the rows of all ranks in rank order; first dimensions may differ."""
    def alltoall(
        self, array: NDArray[Any], splits: Sequence[int], name: str = "", dtype: str | None = None
    ) -> NDArray[Any]:
        """Sends `splits[rank]` rows to each rank; returns the rows received, in rank order."""
    def barrier(self) -> None: ...
    def notify(self, name: str, result: int) -> None: ...
    def wait_notification(self, rank: int, name: str) -> int: ...
    def find_notification(self, rank: int, name: str) -> int | None: ...
    def plan(
        self, name: str, tensors: list[tuple[str, str, tuple[int, ...]]], threshold: int, step_check: int = 0
    ) -> int: ...
    def buckets(self, plan: int, tensors: int) -> list[int]: ...
    def check_finite(self, plan: int) -> None:
        """From here on a tensor of this rank with NaN or infinity ends the job, which names it."""
    def release(self, plan: int) -> None: ...
    def begin_zero_contributions(self, plan: int, tensors: int) -> ZeroContributions:
        """Submits zeros for the `tensors` of a plan until `stop`. Not collective. ValueError if it was released."""
    def finish_zero_contributions(self, zeros: ZeroContributions, steps: list[int]) -> None:
        """After `stop`: more zeros until this rank was in so many steps with each tensor. Collective.

        `steps` are the most that a rank has.
        """
    def abort(self, reason: str, exit_code: int) -> None:
        """Reports that this rank fails: others get PeerLostError with its number and `reason`. Never blocks."""
    @property
    def exit_code(self) -> int:
        """That of the rank whose `abort` has ended the job's communication, else 0."""
    def show_stacks(self, signal: int, descriptor: int) -> None:
        """Shows what the handler of `signal` writes to `descriptor`, if a wait lasts longer than `stall_timeout`."""
    def end_with_job(self) -> None:
        """Ends this process some seconds after the job's communication has failed, whatever its program does."""
    def check(self) -> None: ...
    def await_location_query(self) -> bool:
        """Blocks until another rank asks where this one is; False once the context is closed. One thread."""
    def report_location(self, place: str) -> None: ...
    def close(self) -> None:
        """Leaves the job. Running calls of other threads first end with PeerLostError."""

def on_sigterm(exit_code: int) -> None:
    """With which code SIGTERM ends this process from here on, where nothing else handles it; 0: with the job's."""

def timeline_start(rank: int, size: int) -> None:
    """Starts the timeline of this process, for good. A second call does nothing."""

def timeline_begin(kind: int, name: str) -> int:
    """Begins a span on this thread, and returns its number; 0 if the timeline is off or full.

    `kind` is 1 for a call, 2 for a part of one, 3 for a step.
    """

def timeline_end(span: int, forget: bool = False) -> None: ...
def timeline_write(file: str, rank: int) -> int:
    """Writes the records so far; returns how many were lost. Raises RuntimeError with one line that names the file."""
