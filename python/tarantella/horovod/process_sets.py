"""Process sets: subsets of the ranks that run collectives among themselves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from .._job import runtime
from . import process
from .join_calls import Group


class ProcessSet:
    """Some ranks of the job, in ascending order: `hvd.ProcessSet([0, 2])`.

    Pass it to `hvd.init(process_sets=…)` or `hvd.add_process_set` before its use. Until then, and after
    `remove_process_set`, `process_set_id`, `size()` and `rank()` are None.
    """

    process_set_id: int | None = None

    def __init__(self, ranks: Iterable[int]) -> None:
        """Raises ValueError for anything except distinct whole numbers, such as an MPI communicator."""
        try:
            self.ranks: list[int] | None = sorted(ranks)
        except TypeError:
            raise ValueError(f"an hvd.ProcessSet needs a list of ranks (got {ranks!r})") from None
        if any(type(rank) is not int for rank in self.ranks) or len(set(self.ranks)) < len(self.ranks):
            raise ValueError(f"an hvd.ProcessSet needs a list of different whole numbers (got {self.ranks})")
        self._group: Group | None = None
        self._graph_group: Group | None = None

    def size(self) -> int | None:
        """The number of its ranks."""
        return None if self._group is None else self._group.size

    def rank(self) -> int | None:
        """The number of this process in the set. Raises ValueError if it is not in the set."""
        if self._group is None:
            return None
        if self._group.rank is None:
            raise ValueError(f"rank {runtime.get_rank()} is not in {self}")
        return self._group.rank

    def included(self) -> bool | None:
        """Whether this process is in the set."""
        return None if self.ranks is None else runtime.get_rank() in self.ranks

    def group(self, in_graph: bool = False) -> Group:
        """The group for its collectives. Raises ValueError before the set was added, or after it was removed.

        Collectives in graphs have a separate group, because they run concurrently with the reduction of gradients. The
        one of the global set is created when the first of them is traced; this blocks until all ranks do it.
        """
        if self._group is None:
            process.check("ProcessSet")
            raise ValueError(f"{self} is not part of this job: pass it to hvd.init or hvd.add_process_set first")
        if not in_graph or runtime.get_size() == 1:
            return self._group
        if self._graph_group is None:
            self._group.announce("graphs")
            self.make_graph_group()
        return self._graph_group or self._group

    def make_graph_group(self) -> Group:
        """Creates the group for collectives in graphs. Collective over all ranks of the job."""
        self._graph_group = Group(self.group().ranks)
        return self._graph_group

    def groups(self) -> list[Group]:
        """The groups for its collectives that exist."""
        return [each for each in (self._group, self._graph_group) if each is not None]

    def open(self, number: int) -> None:
        """Creates its groups. Collective over all ranks of the job."""
        whole = self is global_process_set
        self._group = Group() if whole else Group(self.ranks)
        self._graph_group = None if whole else Group(self.ranks)
        self.ranks, self.process_set_id = list(self._group.ranks), number

    def close(self) -> None:
        """Invalidates the set. Does not wait for other ranks."""
        self._group = self._graph_group = self.process_set_id = None

    def __repr__(self) -> str:
        return f"hvd.ProcessSet({self.ranks}, process_set_id={self.process_set_id})"

    __str__ = __repr__


global_process_set = ProcessSet([])
_numbers = itertools.count(1)
_open: dict[int, ProcessSet] = {}


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Adds a process set to the job, and returns it. Blocks until all ranks of the job make the same call.

    Raises ValueError for no ranks, ranks that do not exist, and the ranks of another set of the job.
    """
    process.check("add_process_set")
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    twin = next((each for each in every() if each.ranks == made.ranks), None)
    if twin is not None:
        raise ValueError(f"the job already has a process set of the ranks {made.ranks}: {twin}")
    global_process_set.group().announce("add_process_set")
    made.open(next(_numbers))
    _open[made.process_set_id or 0] = made
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Invalidates a process set. Returns False for the global set and for a set that was not added."""
    process.check("remove_process_set")
    if process_set.process_set_id not in _open:
        return False
    del _open[process_set.process_set_id or 0]
    process_set.close()
    return True


def every() -> list[ProcessSet]:
    """The global process set and those that were added."""
    return [global_process_set, *_open.values()]


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """The ranks of each process set, by its id. The global set has the id 0."""
    process.check("get_process_set_ids_and_ranks")
    return {each.process_set_id or 0: list(each.ranks or ()) for each in every()}


def _start(process_sets: Any) -> None:
    global_process_set.open(0)
    for each in () if process_sets in (None, "dynamic") else process_sets:
        add_process_set(each)


def _end() -> None:
    for each in (*_open.values(), global_process_set):
        each.close()
    _open.clear()


process.on_init(_start, _end)
