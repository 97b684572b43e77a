"""`DistributedGradientTape`: a tape whose gradients are reduced over the ranks."""

from __future__ import annotations

import collections
import weakref
from typing import Any

import keras
import tensorflow as tf

from ..keras import model_state
from ..keras.step.gradients import owner_of
from ..keras.step.step import current_step
from . import process
from .gradients import Reduction, of_tensorflow
from .optimizer import check_groups, weights_of
from .process import ProcessSet, global_process_set
from .reductions import Average, Compression

# By traced graph: the number of reductions in it, by the id of the first variable.
_reductions: weakref.WeakKeyDictionary[Any, dict[int, int]] = weakref.WeakKeyDictionary()
# By owner of the plans of a first variable: the owners for further reductions in a graph.
_further: weakref.WeakKeyDictionary[Any, dict[int, model_state.PlanOwner]] = weakref.WeakKeyDictionary()


class _Tape:
    """A `tf.GradientTape` whose `gradient` reduces over ranks."""

    def __init__(self, tape: tf.GradientTape, reduction: Reduction) -> None:
        self._tape, self._reduction = tape, reduction

    def __enter__(self) -> _Tape:
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._tape.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def register_local_source(self, source: Any) -> None:
        """Excludes a variable from the reduction: its gradient stays that of this rank."""
        self._reduction.local.add(source)

    @tf.autograph.experimental.do_not_convert
    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False, **options: Any
    ) -> Any:
        """The reduced gradients, in the structure of `sources`. Collective.

        Raises RuntimeError in a step of a tarantella.Model, in which tf.GradientTape itself sums over the ranks.
        """
        if current_step() is not None:
            raise RuntimeError(
                "hvd.DistributedGradientTape in the train_step of a tarantella.Model would sum gradients twice: use "
                "tf.GradientTape, which sums them over the ranks there"
            )
        plain = keras.tree.map_structure(of_tensorflow, sources)
        found = self._tape.gradient(target, plain, output_gradients, **options)
        gradients, variables = keras.tree.flatten(found), keras.tree.flatten(sources)  # None is a leaf
        for each in variables:
            if not isinstance(of_tensorflow(each), tf.Variable):
                raise TypeError(
                    f"hvd.DistributedGradientTape reduces the gradients of variables only (got {type(each).__name__}); "
                    "compute other gradients with the tf.GradientTape itself"
                )
        if variables:
            gradients = self._reduction.reduce(_owner(variables[0]), gradients, variables)
        return keras.tree.pack_sequence_as(sources, gradients)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[Any], list[Any]]:
        """Like `gradient`, but returns two lists of pairs (source, gradient): excluded and reduced ones. Collective."""
        sources = keras.tree.flatten(sources)
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients), strict=True))
        local = self._reduction.local
        return [pair for pair in pairs if pair[0] in local], [pair for pair in pairs if pair[0] not in local]


def _owner(variable: Any) -> Any:
    """The owner of the plan. Different for each reduction in a graph, because they may run concurrently."""
    owner = owner_of(variable)
    if tf.executing_eagerly():
        return owner
    counts = _reductions.setdefault(tf.compat.v1.get_default_graph(), {})
    number = counts[id(variable)] = counts.get(id(variable), -1) + 1
    further = _further.setdefault(owner, collections.defaultdict(model_state.PlanOwner))
    return owner if number == 0 else further[number]


def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes the tape's `gradient` average, or sum, over all ranks. Takes the arguments of `DistributedOptimizer`.

    Apply the gradients with a plain optimizer. All ranks must compute the gradients of the same variables equally
    often; each call waits for all of them. Works eagerly and in a `tf.function`. `register_local_source(variable)` of
    the result excludes a variable. Raises TypeError for anything except a tf.GradientTape, and for sources that are
    not variables.
    """
    process.check("DistributedGradientTape")
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"hvd.DistributedGradientTape needs a tf.GradientTape (got {type(gradtape).__name__})")
    check_groups(num_groups, groups)
    reduction = Reduction(
        op, compression, sparse_as_dense, gradient_predivide_factor, process_set, scale_local_gradients
    )
    return _Tape(gradtape, reduction)


def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedGradientTape` that excludes the trainable weights of one layer or several, which must be built."""
    options = {**locals()}
    del options["local_layers"]
    tape = DistributedGradientTape(**options)
    for variable in weights_of(local_layers):
        tape.register_local_source(variable)
    return tape
