"""This process in its job: `init` and `shutdown`, ranks and sizes, and what Horovod was built with."""

from __future__ import annotations

import atexit
import functools
import itertools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import keras

from .._job import log, runtime
from .._job.environment import Layout, layout
from ..keras import hooks

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_initialized = False
# Called with the arguments of `init`, and by `shutdown`.
_on_init: list[Callable[[Any], None]] = []
_on_shutdown: list[Callable[[], None]] = []


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job: blocks until all ranks have called it. Idempotent.

    `comm` may list all ranks of the job. `process_sets` is a list of `ProcessSet`, the same on all ranks, or "dynamic",
    which is what they always are. Raises NotImplementedError for fewer ranks, for an MPI communicator, and for Keras
    backends without TensorFlow.
    """
    global _initialized
    if _initialized:
        return
    if comm is not None and (not isinstance(comm, (list, tuple, range)) or sorted(comm) != list(range(_size()))):
        raise NotImplementedError(
            f"hvd.init takes no MPI communicator and no part of the ranks (got comm={comm!r}): start the job with as "
            "many ranks as it needs, and make an hvd.ProcessSet of some of them"
        )
    if keras.backend.backend() != "tensorflow":
        raise NotImplementedError(
            f"tarantella.horovod needs Keras's TensorFlow backend (got {keras.backend.backend()!r}); set "
            "KERAS_BACKEND=tensorflow"
        )
    runtime.init()
    atexit.unregister(shutdown)
    atexit.register(shutdown)
    # Where it is defined: Keras does not load models whose class has another one.
    hooks.hook(next(each for each in keras.Model.__mro__ if "compile" in vars(each)), "compile", _compile)
    _initialized = True
    try:
        for act in _on_init:
            act(process_sets)
    except BaseException:
        shutdown()
        raise


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves out an argument that scripts for Horovod pass, and that Keras 3 refuses."""

    def compile(model: Any, *args: Any, **options: Any) -> Any:
        if options.pop("experimental_run_tf_function", None) is not None:
            log.warn_once("compile: Keras 3 has no experimental_run_tf_function; it is left out")
        return original(model, *args, **options)

    return compile


def shutdown() -> None:
    """Ends the use of this module until the next `init`. Waits for no rank; process sets become invalid.

    The rank itself leaves the job at the end of its process.
    """
    global _initialized
    if _initialized:
        _initialized = False
        for act in _on_shutdown:
            act()


def is_initialized() -> bool:
    """Whether `init` was called, and `shutdown` not since."""
    return _initialized


def at_init(act: Callable[[Any], None]) -> None:
    """Has `init` call `act(process_sets)`."""
    _on_init.append(act)


def at_shutdown(act: Callable[[], None]) -> None:
    """Has `shutdown` call `act()`."""
    _on_shutdown.append(act)


def check(what: str) -> None:
    """Raises ValueError before `init`, which names `what` was called."""
    if not _initialized:
        raise ValueError(f"hvd.{what} was called before hvd.init(): call hvd.init() once, at the start of the script")


def initialized(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Has a function raise ValueError before `init`."""

    @functools.wraps(function)
    def call(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        check(function.__name__)
        return function(*args, **options)

    return call


def _size() -> int:
    return runtime.get_size()


@initialized
def rank() -> int:
    """This process's number, from 0 to `size() - 1`."""
    return runtime.get_rank()


@initialized
def size() -> int:
    """The number of processes."""
    return _size()


@initialized
def local_rank() -> int:
    """This process's number among those of its machine."""
    return runtime.get_local_rank()


@initialized
def local_size() -> int:
    """The number of processes on this machine."""
    return layout().local_size


@initialized
def cross_rank() -> int:
    """The number of this machine among those that have a process of this local rank."""
    place = layout()
    return sum(ranks > place.local_rank for ranks in place.nodes[: _machine(place)])


@initialized
def cross_size() -> int:
    """The number of machines that have a process of this local rank."""
    place = layout()
    return sum(ranks > place.local_rank for ranks in place.nodes)


def _machine(place: Layout) -> int:
    """The number of this process's machine."""
    ends = itertools.accumulate(place.nodes)
    return next(number for number, end in enumerate(ends) if place.rank < end)


@initialized
def is_homogeneous() -> bool:
    """Whether all machines have equally many processes."""
    return len(set(layout().nodes)) == 1


@initialized
def mpi_threads_supported() -> bool:
    """False: bytes do not travel by Horovod's MPI."""
    return False


def _no() -> bool:
    """False: the job uses Tarantella's own memory, and nothing that Horovod is built with."""
    return False


mpi_enabled = mpi_built = gloo_enabled = gloo_built = _no
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _no


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Raises NotImplementedError: the launcher writes timelines."""
    raise NotImplementedError(
        f"a timeline is for the whole job: start it with tarantella --timeline {file_path} (docs/timeline.md)"
    )


def stop_timeline() -> None:
    """Raises NotImplementedError, as `start_timeline` does."""
    raise NotImplementedError("a timeline is for the whole job: start it with tarantella --timeline FILE")
