"""`DistributedGradientTape`: a tape whose gradients are reduced over the ranks."""

from __future__ import annotations

import weakref
from typing import Any

import keras
import tensorflow as tf

from ..keras import training
from ..keras.step import gradients
from ..keras.step.step import current_step
from . import process
from .gradients import LocalVariables, Reduction
from .optimizer import check_groups, weights_of
from .process_sets import ProcessSet, global_process_set
from .reductions import Average, Compression, Sum, chosen

# By graph that is traced: how often the gradients of a first variable were reduced in it.
_reductions: weakref.WeakKeyDictionary[Any, dict[int, int]] = weakref.WeakKeyDictionary()
# By owner of a first variable's plans: further ones, for further reductions in a graph.
_further: weakref.WeakKeyDictionary[Any, list[training.Reduction]] = weakref.WeakKeyDictionary()


class _Tape:
    """A `tf.GradientTape` with another `gradient`."""

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
        """Excludes a variable from the reduction: its gradient is this rank's."""
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
                "hvd.DistributedGradientTape in the train_step of a tarantella.Model would sum gradients twice: use a "
                "tf.GradientTape, whose gradients are those of all ranks there"
            )
        plain = keras.tree.map_structure(_of_tensorflow, sources)
        found = self._tape.gradient(target, plain, output_gradients, **options)
        gradients, variables = keras.tree.flatten(found), keras.tree.flatten(sources)
        # Flattening drops nothing: None is a leaf.
        reduced = self._reduced(list(gradients), list(variables))
        return keras.tree.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[Any], list[Any]]:
        """`gradient` in two lists of pairs (source, gradient): those excluded, and those reduced. Collective."""
        sources = keras.tree.flatten(sources)
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients), strict=True))
        local = self._reduction.local
        return [pair for pair in pairs if pair[0] in local], [pair for pair in pairs if pair[0] not in local]

    def _reduced(self, gradients: list[Any], sources: list[Any]) -> list[Any]:
        places = [i for i, each in enumerate(sources) if isinstance(_of_tensorflow(each), tf.Variable)]
        for i in set(range(len(sources))) - set(places):
            raise TypeError(
                "hvd.DistributedGradientTape reduces the gradients of variables only (got "
                f"{type(sources[i]).__name__}); take others from the tf.GradientTape itself"
            )
        return self._reduction.reduce(_owner(sources[0]), gradients, sources) if sources else gradients


def _of_tensorflow(source: Any) -> Any:
    return source.value if isinstance(source, keras.Variable) else source


def _owner(variable: Any) -> Any:
    """The owner of the plan: another one for each reduction in a graph, which may run side by side."""
    owner = gradients.owner_of(variable)
    if tf.executing_eagerly():
        return owner
    counts = _reductions.setdefault(tf.compat.v1.get_default_graph(), {})
    number = counts[id(variable)] = counts.get(id(variable), -1) + 1
    further = _further.setdefault(owner, [])
    while len(further) < number:
        further.append(training.Reduction())
    return owner if number == 0 else further[number - 1]


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
    """The tape, with a `gradient` that averages, or sums, over all ranks. Its arguments are `DistributedOptimizer`'s.

    Apply the gradients with a plain optimizer. All ranks take the gradients of the same variables equally often; each
    call waits for all of them. Works eagerly and in a `tf.function`. `register_local_source(variable)` of the result
    excludes a variable. Raises TypeError for anything but a tf.GradientTape, and for sources that are no variables.
    """
    process.check("DistributedGradientTape")
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"hvd.DistributedGradientTape needs a tf.GradientTape (got {type(gradtape).__name__})")
    op = chosen(op, among=(Average, Sum))
    check_groups(num_groups, groups)
    local = LocalVariables(scale_local_gradients)
    return _Tape(gradtape, Reduction(op, compression, sparse_as_dense, gradient_predivide_factor, process_set, local))


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
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in weights_of(local_layers):
        tape.register_local_source(variable)
    return tape
