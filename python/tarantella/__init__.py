"""Data-parallel Keras training on several processes with the results of one process.

Importing is cheap: TensorFlow and Keras are loaded when they are first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import data
from ._job import env_vars as _env_vars
from ._job import excepthook as _excepthook
from ._job import import_hooks as _import_hooks
from ._job import runtime as _runtime
from ._job import signals as _signals
from ._job import timeline as _timeline
from ._job.environment import is_verified as _is_verified
from ._job.environment import layout
from ._job.groups import Group, barrier, get_group_master_rank, is_group_master_rank, new_group
from ._job.runtime import (
    get_local_rank,
    get_master_rank,
    get_rank,
    get_size,
    init,
    is_master_rank,
    restart_count,
)
from ._version import __version__
from .data.tf_data import seeds as _seeds

if TYPE_CHECKING:
    from . import keras, models
    from ._job.errors import Error, MismatchError, PeerLostError, TimeoutError
    from .collectives import ReductionOp, allgather, allreduce, alltoall, broadcast, reduce_scatter
    from .compat import (
        Allgatherv,
        Allreduce,
        Alltoall,
        Barrier,
        Broadcast,
        ReduceScatter,
        TensorAllgatherer,
        TensorAllreducer,
        TensorBroadcaster,
    )
    from .from_python.run import run
    from .keras.calls.custom_loops import broadcast_variables, distributed_optimizer, reduce_gradients
    from .keras.model import Model, Sequential
    from .keras.step.gather import gather_rows
    from .keras.step.gradients import local_gradients
    from .keras.strategy import ParallelStrategy

__all__ = [
    "Allgatherv",
    "Allreduce",
    "Alltoall",
    "Barrier",
    "Broadcast",
    "Error",
    "Group",
    "MismatchError",
    "Model",
    "ParallelStrategy",
    "PeerLostError",
    "ReduceScatter",
    "ReductionOp",
    "Sequential",
    "TensorAllgatherer",
    "TensorAllreducer",
    "TensorBroadcaster",
    "TimeoutError",
    "__version__",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_variables",
    "data",
    "distributed_optimizer",
    "gather_rows",
    "get_group_master_rank",
    "get_local_rank",
    "get_master_rank",
    "get_rank",
    "get_size",
    "init",
    "is_group_master_rank",
    "is_master_rank",
    "keras",
    "local_gradients",
    "models",
    "new_group",
    "reduce_gradients",
    "reduce_scatter",
    "restart_count",
    "run",
]

_MODULES = ("keras", "models")
_LAZY = {
    "Allgatherv": ".compat",
    "Allreduce": ".compat",
    "Alltoall": ".compat",
    "Barrier": ".compat",
    "Broadcast": ".compat",
    "ReduceScatter": ".compat",
    "ReductionOp": ".collectives",
    "allgather": ".collectives",
    "allreduce": ".collectives",
    "alltoall": ".collectives",
    "broadcast": ".collectives",
    "reduce_scatter": ".collectives",
    "TensorAllgatherer": ".compat",
    "TensorAllreducer": ".compat",
    "TensorBroadcaster": ".compat",
    "Error": "._job.errors",
    "MismatchError": "._job.errors",
    "Model": ".keras.model",
    "ParallelStrategy": ".keras.strategy",
    "PeerLostError": "._job.errors",
    "Sequential": ".keras.model",
    "TimeoutError": "._job.errors",
    "broadcast_variables": ".keras.calls.custom_loops",
    "gather_rows": ".keras.step.gather",
    "local_gradients": ".keras.step.gradients",
    "distributed_optimizer": ".keras.calls.custom_loops",
    "reduce_gradients": ".keras.calls.custom_loops",
    "run": ".from_python.run",
}

_env_vars.check()
_timeline.start()
_seeds.arrange()


def _observe(module: Any) -> None:
    from .verify import observe

    observe.install(module.Model)


def _choose_floatx(module: Any) -> None:
    from .verify import floatx

    floatx.choose(module)


if _is_verified():  # a process of `tarantella verify`, which observes every model
    _import_hooks.now_or_after("keras", _choose_floatx)
    _import_hooks.after_import(f"{__name__}.keras.model", _observe)


def _tune(module: Any) -> None:
    from .keras import tuners

    tuners.install(module)


if layout().size > 1:
    _import_hooks.now_or_after("keras_tuner", _tune)
if layout().launched:
    _signals.handle_once()
if layout().launched or layout().size > 1:
    _excepthook.install(_runtime.abort, _runtime.leave)  # an error before this rank has joined also ends the job


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
