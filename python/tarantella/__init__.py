"""Data-parallel Keras training on several processes with the results of one process.

Importing is cheap: TensorFlow and Keras are loaded when they are first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import data as data
from ._job import excepthook as _excepthook
from ._job import import_hooks as _import_hooks
from ._job import runtime as _runtime
from ._job import signals as _signals
from ._job import timeline as _timeline
from ._job.environment import check as _check
from ._job.environment import is_verified as _is_verified
from ._job.environment import layout
from ._job.groups import Group as Group
from ._job.groups import barrier as barrier
from ._job.groups import get_group_master_rank as get_group_master_rank
from ._job.groups import is_group_master_rank as is_group_master_rank
from ._job.groups import new_group as new_group
from ._job.runtime import get_local_rank as get_local_rank
from ._job.runtime import get_master_rank as get_master_rank
from ._job.runtime import get_rank as get_rank
from ._job.runtime import get_size as get_size
from ._job.runtime import init as init
from ._job.runtime import is_master_rank as is_master_rank
from ._job.runtime import restart_count as restart_count
from ._version import __version__ as __version__
from .data.tf_data import arrange_default_seed as _arrange_default_seed

# For type checkers, to which `import x as x` exports x: the names that __getattr__ loads when they are first used.
if TYPE_CHECKING:
    from . import keras as keras
    from . import models as models
    from ._job.errors import Error as Error
    from ._job.errors import MismatchError as MismatchError
    from ._job.errors import PeerLostError as PeerLostError
    from ._job.errors import TimeoutError as TimeoutError
    from .collectives import ReductionOp as ReductionOp
    from .collectives import allgather as allgather
    from .collectives import allreduce as allreduce
    from .collectives import alltoall as alltoall
    from .collectives import broadcast as broadcast
    from .collectives import reduce_scatter as reduce_scatter
    from .compat import Allgatherv as Allgatherv
    from .compat import Allreduce as Allreduce
    from .compat import Alltoall as Alltoall
    from .compat import Barrier as Barrier
    from .compat import Broadcast as Broadcast
    from .compat import ParallelStrategy as ParallelStrategy
    from .compat import ReduceScatter as ReduceScatter
    from .compat import TensorAllgatherer as TensorAllgatherer
    from .compat import TensorAllreducer as TensorAllreducer
    from .compat import TensorBroadcaster as TensorBroadcaster
    from .from_python.run import run as run
    from .keras.custom_loops import broadcast_variables as broadcast_variables
    from .keras.custom_loops import distributed_optimizer as distributed_optimizer
    from .keras.custom_loops import reduce_gradients as reduce_gradients
    from .keras.model import Model as Model
    from .keras.model import Sequential as Sequential
    from .keras.step.gather import gather_rows as gather_rows
    from .keras.step.gradients import local_gradients as local_gradients

_MODULES = ("keras", "models")
_NAMES = {
    "._job.errors": ("Error", "MismatchError", "PeerLostError", "TimeoutError"),
    ".collectives": ("ReductionOp", "allgather", "allreduce", "alltoall", "broadcast", "reduce_scatter"),
    ".compat": (
        "Allgatherv",
        "Allreduce",
        "Alltoall",
        "Barrier",
        "Broadcast",
        "ParallelStrategy",
        "ReduceScatter",
        "TensorAllgatherer",
        "TensorAllreducer",
        "TensorBroadcaster",
    ),
    ".from_python.run": ("run",),
    ".keras.custom_loops": ("broadcast_variables", "distributed_optimizer", "reduce_gradients"),
    ".keras.model": ("Model", "Sequential"),
    ".keras.step.gather": ("gather_rows",),
    ".keras.step.gradients": ("local_gradients",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:
    __all__ = [
        "Group",
        "__version__",
        "barrier",
        "data",
        "get_group_master_rank",
        "get_local_rank",
        "get_master_rank",
        "get_rank",
        "get_size",
        "init",
        "is_group_master_rank",
        "is_master_rank",
        "new_group",
        "restart_count",
        *_MODULES,
        *_MODULE_OF,
    ]

_check()
_timeline.start()
_arrange_default_seed()


def _observe(module: Any) -> None:
    from .verify import observe

    observe.install(module.Model)


if _is_verified():  # a process of `tarantella verify`, which observes every model
    from . import verify as _verify

    _import_hooks.after_import("keras", _verify.choose_floatx)
    _import_hooks.after_import(f"{__name__}.keras.model", _observe)


def _tune(module: Any) -> None:
    from .keras import replicas

    replicas.hook_tuners(module)


if layout().size > 1:
    _import_hooks.after_import("keras_tuner", _tune)
if layout().launched:
    _signals.handle_once()
if layout().launched or layout().size > 1:
    _excepthook.install(_runtime.abort, _runtime.leave)  # an error before this rank has joined also ends the job


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_MODULE_OF})
