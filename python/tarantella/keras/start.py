"""Before the first step of a call: the model is built, and all ranks start from the same variables. Collective.

`data.input` has compared data, arguments and seeds before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import tree

from .._backend import backend
from .._job import timeline
from ..data.input import DistributedInput, check_equal
from ..data.rows import MicroBatch, PredictBatch, has_rows
from . import epoch_end, hooks, limitations, model_state, patches, private, replicas
from .step import batch_dependent


@timeline.part("start")
def synchronize(model: Any, kind: str, inputs: list[DistributedInput]) -> None:
    """Makes ranks equal before the first of steps of this kind on these inputs. Collective."""
    known = [rows for each in inputs if (rows := each.rows_of_a_batch()) is not None]
    model_state.of(model).batch_rows = max(known, default=None)
    _synchronize(model, inputs[0].batches.element_spec, kind, known[0] if known else None)


@timeline.part("start")
def synchronize_for_batches(model: Any, kind: str, lines: list[str], spec: Any, rows: int | None) -> None:
    """As `synchronize`, before the first of many single batches of the type `spec`, of so many rows."""
    check_equal("a batch", [*lines, f"TNT_WEIGHT_CHECK_STEPS={model_state.weight_check_interval()}"])
    _synchronize(model, spec, kind, rows)
    limitations.no_xla_where_impossible(model, *{kind} & {"train", "test"})
    limitations.warn(model)


def _synchronize(model: Any, spec: Any, kind: str, rows: int | None) -> None:
    # A step that has padding must be able to undo what it has done to all that is kept.
    undoes = backend.steps_are_stateful and not isinstance(spec, (MicroBatch, PredictBatch)) and not model.run_eagerly
    build(model, spec.data, kind, with_metrics=undoes)
    replicas.check_alike(model, optimizers=kind == "train")
    from_master(model, replicas.variables(model, optimizers=kind == "train"))
    patches.hook_model(model)
    model_state.of(model).reset_for_call()
    if kind != "predict":
        batch_dependent.try_out_loss(model, spec.data, rows)


@timeline.part("send weights of the master")
def from_master(model: Any, variables: list[Any]) -> list[Any]:
    """Sets variables of the model to the master's values, layer state to the mean if ranks have stepped. Collective.

    Where a trainable variable differs, weights were set or loaded after the steps: then all come from the master. The
    variables must include all of the model except generators, which get a different stream on each rank.

    Returns the trainable variables that differed after steps.
    """
    differ = replicas.differing([v for v in variables if not private.is_seed(v)])
    known = model_state.of(model)
    trained = _among(differ, model.trainable_variables) if known.stepped_since_sync else []
    if known.stepped_since_sync and not trained:
        averaged = {id(v) for v in epoch_end.average_of(model, _among(differ, model.non_trainable_weights))}
        differ = [v for v in differ if id(v) not in averaged]
    known.stepped_since_sync = False
    replicas.send([*differ, *(v for v in variables if private.is_seed(v))])
    return trained


def _among(some: list[Any], every: Iterable[Any]) -> list[Any]:
    theirs = {id(v) for v in every}
    return [v for v in some if id(v) in theirs]


@timeline.part("build")
def build(model: Any, data: Any, kind: str, with_metrics: bool = False) -> None:
    """Creates the variables that must be equal before the first step, for data of this type.

    What losses and metrics keep is otherwise made in the first step, as in plain Keras.
    """
    if not _has_weights(model) or (with_metrics and not private.compiled_is_built(model)):
        _trace(model, data, kind)
    optimizer = getattr(model, "optimizer", None)
    if kind == "train" and optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def build_whole(model: Any, data: Any) -> None:
    """Creates all that training keeps, for data of this type."""
    build(model, data, "train", with_metrics=True)
    if not all(each.built for each in private.optimizers(model)):  # those that a train_step of the user's builds
        _trace(model, data, "train")


def _has_weights(model: Any) -> bool:
    layers = private.every_layer(model, include_self=False)
    return all(layer.built for layer in layers) and (model.built or bool(layers))


def _trace(model: Any, data: Any, kind: str) -> None:
    """Traces the step that will run; Keras's own training step makes no more than the cheaper one of evaluation."""
    step = hooks.original(model, f"{kind}_step")
    if kind == "train" and not limitations.is_overridden(model, "train_step"):
        step = functools.partial(keras.Model.test_step, model)
    try:
        backend.trace(step, data)
    except Exception as error:
        # What the failed trace has made has no values, and nothing gives it any: then this is the error to show.
        if _has_weights(model) and all(map(_has_value, replicas.variables(model))):
            return  # the step itself raises it again, or is run eagerly and need not be traced
        if any(getattr(leaf.shape, "rank", 0) is None for leaf in tree.flatten(data) if has_rows(leaf)):
            raise ValueError(
                "the model is not built and the dataset does not say the shapes of its elements; give the model an "
                "Input, or the dataset shapes: dataset.map(…) with tf.ensure_shape"
            ) from error
        if model.run_eagerly:
            raise ValueError(
                "the model is not built, and only running it eagerly would build it; build it before on "
                "every rank: give it an Input, call model.build(…), or call it on one batch"
            ) from error
        raise


def _has_value(variable: Any) -> bool:
    """False for a variable that was made in a trace that failed."""
    try:
        np.asarray(variable)
    except Exception:  # the framework's own
        return False
    return True


def check_compiled(model: Any, name: str) -> None:
    """Raises ValueError for a model that is not compiled."""
    if not getattr(model, "compiled", False):
        raise ValueError(f"compile the model before {name}: model.compile(optimizer=…, loss=…)")
