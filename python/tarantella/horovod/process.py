"""This process in its job: `init` and `shutdown`, ranks and sizes, and the questions about Horovod's build."""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Callable
from typing import Any

import keras

from .._job import log, runtime
from .._job.environment import layout
from ..keras import hooks

_initialized = False
_open: Callable[[Any], None]  # set by `on_init`
_close: Callable[[], None]


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job: blocks until all ranks have called it. Idempotent.

    `comm` may list all ranks of the job. `process_sets` is a list of `ProcessSet`, the same on all ranks; "dynamic" has
    no effect, because sets can always be added. Raises NotImplementedError for fewer ranks, for an MPI communicator,
    and for other backends of Keras than TensorFlow.
    """
    global _initialized
    if _initialized:
        return
    every = list(range(runtime.get_size()))
    if comm is not None and (not isinstance(comm, (list, tuple, range)) or sorted(comm) != every):
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
    atexit.unregister(shutdown)
    atexit.register(shutdown)
    # On the class that defines it: Keras does not load models whose class defines another `compile`.
    hooks.hook(next(each for each in keras.Model.__mro__ if "compile" in vars(each)), "compile", _compile)
    _initialized = True
    try:
        _open(process_sets)
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
    global _initialized
    if _initialized:
        _initialized = False
        _close()


def is_initialized() -> bool:
    """Whether `init` was called, without a later `shutdown`."""
    return _initialized


def on_init(open_sets: Callable[[Any], None], close_sets: Callable[[], None]) -> None:
    """Lets `init` call `open_sets(process_sets)`, and `shutdown` call `close_sets()`."""
    global _open, _close
    _open, _close = open_sets, close_sets


def check(name: str) -> None:
    """Raises ValueError before `init`, with the name of the function that was called."""
    if not _initialized:
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


def mpi_threads_supported() -> bool:
    """False: Tarantella does not use Horovod's MPI."""
    check("mpi_threads_supported")
    return False


def _no() -> bool:
    """False: Tarantella uses none of the libraries of Horovod."""
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
