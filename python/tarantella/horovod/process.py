"""This process in its job: `init` and `shutdown`, ranks and sizes, process sets, questions about Horovod's build."""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import keras

from .._job import log, runtime
from .._job.environment import layout
from ..keras import hooks
from .join_calls import Group

__all__ = [
    "ProcessSet",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job: blocks until all ranks have called it. Idempotent.

    `comm` may list all ranks of the job. `process_sets` is a list of `ProcessSet`, the same on all ranks; "dynamic" has
    no effect, because sets can always be added. Raises NotImplementedError for fewer ranks, for an MPI communicator,
    and for other backends of Keras than TensorFlow.
    """
    if is_initialized():
        return
    ranks = list(range(runtime.get_size()))
    if comm is not None and (not isinstance(comm, (list, tuple, range)) or sorted(comm) != ranks):
        raise NotImplementedError(
            f"hvd.init does not support an MPI communicator or a part of the ranks (got comm={comm!r}): start the job "
            "with as many ranks as it needs, and use an hvd.ProcessSet for some of them"
        )
    if keras.backend.backend() != "tensorflow":
        raise NotImplementedError(
            f"tarantella.horovod needs Keras's TensorFlow backend (got {keras.backend.backend()!r}); set "
            "KERAS_BACKEND=tensorflow"
        )
    runtime.init()
    atexit.register(shutdown)
    # On the class that defines it: Keras does not load models whose class defines another `compile`.
    hooks.hook(next(each for each in keras.Model.__mro__ if "compile" in vars(each)), "compile", _compile)
    try:
        global_process_set.open(0)
        for each in () if process_sets in (None, "dynamic") else process_sets:
            add_process_set(each)
    except BaseException:
        shutdown()
        raise


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    """Drops an argument that scripts for Horovod pass and Keras 3 rejects."""

    def compile(model: Any, *args: Any, **options: Any) -> Any:
        if options.pop("experimental_run_tf_function", None) is not None:
            log.warn_once("compile: experimental_run_tf_function is ignored, because Keras 3 does not have it")
        return original(model, *args, **options)

    return compile


def shutdown() -> None:
    """Ends the use of this module until the next `init`. Does not wait for other ranks; invalidates process sets.

    The rank itself leaves the job when its process ends.
    """
    for each in list(of_job.values()):
        each.close()


def is_initialized() -> bool:
    """Whether `init` was called, without a later `shutdown`."""
    return 0 in of_job


def check(name: str) -> None:
    """Raises ValueError before `init`, with the name of the function that was called."""
    if not is_initialized():
        raise ValueError(f"hvd.{name} was called before hvd.init(): call hvd.init() once, at the start of the script")


def rank() -> int:
    """The number of this process, from 0 to `size() - 1`."""
    check("rank")
    return runtime.get_rank()


def size() -> int:
    """The number of processes."""
    check("size")
    return runtime.get_size()


def local_rank() -> int:
    """The number of this process among those of its machine."""
    check("local_rank")
    return runtime.get_local_rank()


def local_size() -> int:
    """The number of processes on this machine."""
    check("local_size")
    return layout().local_size


def cross_rank() -> int:
    """The number of this machine among those that have a process of this local rank."""
    check("cross_rank")
    place = layout()
    machine = next(i for i, end in enumerate(itertools.accumulate(place.nodes)) if place.rank < end)
    return sum(ranks > place.local_rank for ranks in place.nodes[:machine])


def cross_size() -> int:
    """The number of machines that have a process of this local rank."""
    check("cross_size")
    place = layout()
    return sum(ranks > place.local_rank for ranks in place.nodes)


def is_homogeneous() -> bool:
    """Whether all machines have equally many processes."""
    check("is_homogeneous")
    return len(set(layout().nodes)) == 1


class ProcessSet:
    """Some ranks of the job, in ascending order: `hvd.ProcessSet([0, 2])`.

    Pass it to `hvd.init(process_sets=…)` or `hvd.add_process_set` before its use. Until then, and after
    `remove_process_set`, `process_set_id`, `size()` and `rank()` are None.
    """

    process_set_id: int | None = None

    def __init__(self, ranks: Iterable[int]) -> None:
        """Raises ValueError for anything except distinct whole numbers, such as an MPI communicator."""
        try:
            self.ranks = sorted(ranks)
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

    def included(self) -> bool:
        """Whether this process is in the set."""
        return runtime.get_rank() in self.ranks

    def group(self, in_graph: bool = False) -> Group:
        """The group for its collectives. Raises ValueError before the set was added, or after it was removed.

        Collectives in graphs have a separate group, because they run concurrently with the reduction of gradients. The
        one of the global set is created when the first of them is traced; this blocks until all ranks do it.
        """
        if self._group is None:
            check("ProcessSet")
            raise ValueError(f"{self} is not part of this job: pass it to hvd.init or hvd.add_process_set first")
        if not in_graph or runtime.get_size() == 1:
            return self._group
        if self._graph_group is None:
            self._group.announce("graphs")
            return self.make_graph_group()
        return self._graph_group

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
        of_job[number] = self

    def close(self) -> None:
        """Invalidates the set. Does not wait for other ranks."""
        del of_job[self.process_set_id or 0]
        self._group = self._graph_group = self.process_set_id = None

    def __repr__(self) -> str:
        return f"hvd.ProcessSet({self.ranks}, process_set_id={self.process_set_id})"


global_process_set = ProcessSet([])
_numbers = itertools.count(1)
of_job: dict[int, ProcessSet] = {}  # by its id


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Adds a process set to the job, and returns it. Blocks until all ranks of the job make the same call.

    Raises ValueError for no ranks, ranks that do not exist, and the ranks of another set of the job.
    """
    check("add_process_set")
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    twin = next((each for each in of_job.values() if each.ranks == made.ranks), None)
    if twin is not None:
        raise ValueError(f"the job already has a process set of the ranks {made.ranks}: {twin}")
    global_process_set.group().announce("add_process_set")
    made.open(next(_numbers))
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Invalidates a process set. Returns False for the global set and for a set that was not added."""
    check("remove_process_set")
    if not process_set.process_set_id:
        return False
    process_set.close()
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """The ranks of each process set, by its id. The global set has the id 0."""
    check("get_process_set_ids_and_ranks")
    return {number: list(each.ranks) for number, each in of_job.items()}


def _no() -> bool:
    """False: Tarantella uses none of the libraries of Horovod."""
    return False


mpi_enabled = mpi_built = gloo_enabled = gloo_built = _no
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _no


def mpi_threads_supported() -> bool:
    """False: Tarantella does not use Horovod's MPI. Raises ValueError before `init`."""
    check("mpi_threads_supported")
    return False


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Raises NotImplementedError: the launcher writes timelines."""
    raise NotImplementedError(
        f"a timeline is for the whole job: start it with tarantella --timeline {file_path} (docs/timeline.md)"
    )


def stop_timeline() -> None:
    """Raises NotImplementedError, as `start_timeline` does."""
    raise NotImplementedError("a timeline is for the whole job: start it with tarantella --timeline FILE")
