"""fit, evaluate, predict: several ranks check their arguments, start equal, and run Keras's own loop, or one batch.

With one rank it is plain Keras, and micro batch sizes become batch sizes. Each function takes the model, Keras's own
method, its arguments, and our options (see `patches`). `install` puts them in the place of Keras's methods.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from keras import tree

from .._backend import backend
from .._exchange import name_of
from .._job import log, runtime
from .._job.environment import prints_output
from .._job.log import abbreviated
from ..data import tf_data
from ..data.adapter import ShardedAdapter
from ..data.input import DataArguments, DistributedInput, checked_input, distribute, uses_pipelines, with_batch_size
from . import call_data, epoch_end, files, hooks, limitations, model_state, patches, private, replicas, start, written
from .callbacks import internal, placement

_Method = Callable[..., Any]


def _verbose(verbose: Any) -> Any:
    return verbose if prints_output() else 0


def _settings(arguments: dict[str, Any]) -> list[str]:
    """What must be equal on all ranks beside the data, a line each."""
    arguments = {**arguments, "TNT_WEIGHT_CHECK_STEPS": model_state.weight_check_interval()}
    return [f"{name}={value!r}" for name, value in arguments.items()]


def fit(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.fit`."""
    data, validation = call_data.of_fit(given, ours)
    users = placement.in_order(given["callbacks"])
    takes_snapshots = placement.snapshot_among(users) is not None
    if takes_snapshots and not uses_pipelines():
        raise NotImplementedError("Snapshot needs Keras's tensorflow backend so far")
    if takes_snapshots or runtime.get_size() > 1:
        start.check_compiled(model, "fit")
        split = given.pop("validation_split")
        if split and validation.x is None:
            data, validation = call_data.split(data, validation, split)
    if runtime.get_size() > 1:
        return _fit_together(model, method, data, validation, users, **given)
    patches.hook_for_timeline(model)
    data = with_batch_size(data, model)
    if validation.x is not None:
        validation = with_batch_size(validation, model)
    given |= {
        "callbacks": internal.with_reporting(given["callbacks"]),
        "validation_data": None if validation.x is None else (validation.x, validation.y, validation.sample_weight),
        "validation_batch_size": validation.batch_size or data.batch_size,
        "validation_steps": validation.steps,
        "steps_per_epoch": data.steps,
    }
    if not takes_snapshots:
        given |= {"sample_weight": data.sample_weight, "shuffle": data.shuffle, "class_weight": data.class_weight}
        return method(data.x, data.y, data.batch_size, **given)
    part = checked_input(data, model)
    part.keep_whole()
    return _run_keras_fit(model, method, part, validation.x, users, shuffle=False, **given)


def _fit_together(
    model: Any,
    method: _Method,
    data: DataArguments,
    validation: DataArguments,
    users: list[Any],
    *,
    verbose: Any,
    callbacks: Any,
    **options: Any,
) -> Any:
    options |= {"steps_per_epoch": data.steps, "validation_steps": validation.steps}
    given = [data] if validation.x is None else [data, validation]
    parts = distribute("fit", given, model, _settings(options))
    start.synchronize(model, "train", parts)
    rank_callbacks = internal.with_reporting(
        [replicas.CompareWeights(model), *placement.callbacks_of_rank(model, callbacks)]
    )
    limitations.warn(model)
    explained = limitations.explaining_row_errors(model, "train", parts[0])
    of_validation = parts[1] if parts[1:] else None
    options |= {
        "validation_data": of_validation and of_validation.batches,
        "shuffle": False,
        "verbose": _verbose(verbose),
        "callbacks": rank_callbacks,
    }
    with limitations.no_xla_for_own_data(model, parts), files.by_master(model), explained:
        limitations.no_xla_where_impossible(model, "train", "test")
        validating = hooks.setting(model_state.of(model), validation=of_validation)
        with model_state.during(model, model_state.Call(trains=True)), validating:
            history = _run_keras_fit(model, method, parts[0], validation.x, users, **options)
    written.compare()  # the files that the master's callbacks wrote are there when any rank goes on
    return history


def _run_keras_fit(
    model: Any, method: _Method, part: DistributedInput, validation: Any, users: list[Any], **options: Any
) -> Any:
    """Runs Keras's own method, with snapshots where a callback asks for them.

    `validation` are the user's data, `users` the user's callbacks; the options have those of this rank.
    """
    snapshot, session_of_fit = placement.snapshot_among(users), None
    if snapshot is not None:
        from .snapshots import session  # most jobs need none of it

        if tf_data.is_dataset(validation) and tf_data.structure.order_of(validation).seeds:
            log.warn_once(
                "Snapshot: the validation data is shuffled, so its order after a restart is another; leave it in order"
            )
        spec = part.batches.element_spec
        build = functools.partial(start.build_whole, model, getattr(spec, "data", spec))
        session_of_fit = session.begin(model, snapshot, users, part.batches, part.order, build)
    if session_of_fit is None:
        return method(part.batches, **options)
    return session_of_fit.fit(method, options.pop("callbacks"), **options)


def evaluate(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.evaluate`: the numbers of all rows, on every rank."""
    batches = patches.validation_batches(model, given)
    if batches is not None:
        with model_state.during(model, model_state.Call(trains=False)):
            return method(batches, **given)
    data = call_data.of_call("evaluation data", given, ours)
    if runtime.get_size() == 1:
        data = with_batch_size(data, model)
        patches.hook_for_timeline(model)
        return method(data.x, data.y, data.batch_size, sample_weight=data.sample_weight, steps=data.steps, **given)
    start.check_compiled(model, "evaluate")
    (part,) = distribute("evaluate", [data], model, _settings({"steps": data.steps}))
    start.synchronize(model, "test", [part])
    limitations.no_xla_where_impossible(model, "test")
    if not ours.get("validates", False):  # else they are those of the fit around, which has placed them
        given["callbacks"] = placement.callbacks_of_rank(model, given["callbacks"])
    given |= {"verbose": _verbose(given["verbose"]), "steps": data.steps}
    explained = limitations.explaining_row_errors(model, "test", part)
    during = model_state.during(model, model_state.Call(trains=False))
    with limitations.no_xla_for_own_data(model, [part]), files.by_master(model), explained, during:
        return method(part.batches, **given)


def predict(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.predict`: all rows in the order of the data, on every rank or on the master.

    Data of this rank's own are predicted by this rank alone.
    """
    data = call_data.of_call("data to predict", given, ours, ("x", "batch_size"))
    if runtime.get_size() == 1 or not data.distributed:
        data = with_batch_size(replace(data, distributed=False), model)
        patches.hook_for_timeline(model)
        return method(data.x, data.batch_size, steps=data.steps, **given)
    if data.is_of_own_files:
        raise ValueError(
            "predict cannot return the rows of a dataset with shard='file' in order: every rank reads its own files; "
            "to predict them on this rank alone, pass tnt_distribute_dataset=False"
        )
    everywhere = ours.get("everywhere", True)
    settings = _settings({"steps": data.steps, "tnt_predict_all_ranks": everywhere})
    (part,) = distribute("predict", [data], model, settings)
    start.synchronize(model, "predict", [part])
    callbacks = placement.arrange_to_predict(given["callbacks"])
    with files.by_master(model):
        outputs, positions, lengths = method(
            part.batches, verbose=_verbose(given["verbose"]), steps=data.steps, callbacks=callbacks
        )
    return call_data.in_order(outputs, positions, lengths, everywhere)


def train_on_batch(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.train_on_batch`."""
    if runtime.get_size() == 1:
        return method(**given)
    start.check_compiled(model, "train_on_batch")
    x, y, sample_weight, class_weight = (given[name] for name in ("x", "y", "sample_weight", "class_weight"))
    if class_weight is not None:
        if sample_weight is not None:
            raise ValueError("class_weight and sample_weight cannot be given at the same time")
        sample_weight = private.data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    batch = _micro_batch(model, "train", (x, y, sample_weight))
    replicas.before_step(model)
    model_state.of(model).count_single_batch()
    return _run_step(model, "train", batch, given["return_dict"])


def test_on_batch(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.test_on_batch`."""
    if runtime.get_size() == 1:
        return method(**given)
    start.check_compiled(model, "test_on_batch")
    batch = _micro_batch(model, "test", (given["x"], given["y"], given["sample_weight"]))
    return _run_step(model, "test", batch, given["return_dict"])


def predict_on_batch(model: Any, method: _Method, given: dict[str, Any], ours: dict[str, Any]) -> Any:
    """`keras.Model.predict_on_batch`."""
    if runtime.get_size() == 1:
        return method(**given)
    batch = _micro_batch(model, "predict", (given["x"],))
    outputs, positions, lengths = tree.map_structure(np.asarray, backend.run_step(model, "predict", batch))
    return call_data.in_order(outputs, positions, lengths, everywhere=True)


def _run_step(model: Any, kind: str, batch: Any, return_dict: bool) -> Any:
    with model_state.during(model, model_state.Call(kind == "train", on_batch=True)):
        if private.resets_metrics():
            model.reset_metrics()
        else:
            model_state.reset_unless_master(model)
        logs = epoch_end.flattened(private.results(model, backend.run_step(model, kind, batch)))
    return logs if return_dict else private.in_order(model, logs)


def _micro_batch(model: Any, kind: str, batch: Sequence[Any]) -> Any:
    """This rank's rows of a global batch for a step of that kind, with equal ranks. Collective.

    To "train", ranks are made equal the first time since the model was compiled only.
    """
    if not uses_pipelines():
        raise NotImplementedError(f"{kind}_on_batch on several ranks needs Keras's tensorflow backend so far")
    positions = kind == "predict"
    micro = tf_data.from_arrays.one_batch(batch, runtime.get_rank(), runtime.get_size(), positions)
    _start(model, kind, micro)
    return micro


def _start(model: Any, kind: str, micro: Any) -> None:
    known, tracker = model_state.of(model).equal_for, private.loss_tracker(model)
    if kind in known and known[kind] is tracker:
        differed = start.from_master(model, model.weights) if kind != "train" else []
        if differed:  # training on batches compares weights now and then, and would find those set in between
            log.warn_once(
                f"{abbreviated([name_of(v) for v in differed])}: ranks had different values, and now have the "
                f"master's. If you have not set them on the master, ranks train apart: {replicas.CURE}"
            )
        return
    # Rows differ from rank to rank and from call to call: no layer may be built for a number of them.
    specs = tf_data.from_arrays.types_of(micro.data)
    lines = [f"a part of a batch: {spec}" for spec in tree.flatten(specs)]
    rows = None if kind == "predict" else int(micro.metadata[1])
    start.synchronize_for_batches(model, kind, lines, micro._replace(data=specs), rows)
    known[kind] = private.loss_tracker(model)


def install() -> None:
    """Hooks Keras's methods that train and functions that save; on several ranks verifies Keras first. Idempotent.

    Also on one rank the functions that save take a tarantella.Model, and write whole files after Keras has asked about
    overwriting: nothing nearer to the user sees both. Raises NotImplementedError on several ranks for a Keras whose
    private names are not as they must be.
    """
    files.hook_writers()
    patches.hook_methods(
        {
            "fit": fit,
            "evaluate": evaluate,
            "predict": predict,
            "train_on_batch": train_on_batch,
            "test_on_batch": test_on_batch,
            "predict_on_batch": predict_on_batch,
        }
    )
    hooks.hook(private.data_adapters, "get_data_adapter", _or_micro_batches)
    if runtime.get_size() > 1:
        hooks.check_keras()
        written.hook_loading()
        files.hook_checkpoints()


def _or_micro_batches(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets early Keras 3 take an adapter where data is expected, as later ones do by themselves."""

    def get_data_adapter(x: Any, *arguments: Any, **options: Any) -> Any:
        return x if isinstance(x, ShardedAdapter) else original(x, *arguments, **options)

    return get_data_adapter
