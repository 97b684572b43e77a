"""One distributed call of fit, evaluate or predict: checks, equal starts, then Keras's own loop."""

from __future__ import annotations

from typing import Any

import keras

from ..._job import runtime
from ..._job.environment import prints_output
from ...data import arrays
from ...data.feed import feed_of
from .. import differences, files, private
from ..callbacks import placement
from ..epoch import drift
from ..step.step import inputs_of
from ..trials import coupling
from . import row_numbers, row_order, start, xla


def _verbose(verbose: Any) -> Any:
    return verbose if prints_output() else 0


def fit(
    model: Any,
    x: Any,
    y: Any,
    validation_data: Any,
    *,
    training: dict[str, Any],
    validation: dict[str, Any],
    validation_split: float,
    **options: Any,
) -> Any:
    """Distributed `keras.Model.fit`. `training` and `validation` are what `data.feed.feed_of` takes beside the data."""
    start.check_compiled(model, "fit")
    if validation_split and validation_data is None:
        parts = (x, y, training.pop("sample_weight"))
        (x, y, training["sample_weight"]), validation_data = private.train_validation_split(parts, validation_split)
    feeds = [feed_of("training data", model, x, y, steps=options["steps_per_epoch"], **training)]
    if validation_data is not None:
        parts = keras.utils.unpack_x_y_sample_weight(validation_data)
        sizes = (validation["batch_size"], validation["micro_batch_size"])
        if sizes == (None, None) and arrays.can_distribute(parts):
            validation["batch_size"] = feeds[0].batch_size
        feeds.append(feed_of("validation data", model, *parts, steps=options["validation_steps"], **validation))
    shown = ("epochs", "initial_epoch", "steps_per_epoch", "validation_steps", "validation_freq")
    batches = start.feeds_alike(model, "fit", feeds, {name: options[name] for name in shown})
    options["verbose"] = _verbose(options["verbose"])
    options["callbacks"] = [drift.BeforeSteps(), *placement.arrange(model, options["callbacks"])]
    differences.say(model)
    coupling.say(model, inputs_of(batches[0].element_spec.data))
    explained = row_numbers.explained(model, "train", feeds[0], batches[0].element_spec)
    with xla.off_for_own_data(model, feeds), files.by_master(model), explained:
        xla.off_for_training(model)
        history = model.fit(batches[0], validation_data=batches[1] if batches[1:] else None, shuffle=False, **options)
    # What the master's callbacks wrote is there when any rank goes on.
    runtime.context().barrier()
    return history


def evaluate(
    model: Any, x: Any, y: Any, *, data: dict[str, Any], verbose: Any, steps: Any, callbacks: Any, return_dict: bool
) -> Any:
    """Distributed `keras.Model.evaluate`: the numbers of all rows, on every rank."""
    start.check_compiled(model, "evaluate")
    feed = feed_of("evaluation data", model, x, y, steps=steps, **data)
    (batches,) = start.feeds_alike(model, "evaluate", [feed], {"steps": steps})
    callbacks = placement.arrange(model, callbacks)
    explained = row_numbers.explained(model, "test", feed, batches.element_spec)
    with xla.off_for_own_data(model, [feed]), files.by_master(model), explained:
        return model.evaluate(
            batches, verbose=_verbose(verbose), steps=steps, callbacks=callbacks, return_dict=return_dict
        )


def predict(
    model: Any, x: Any, *, data: dict[str, Any], verbose: Any, steps: Any, callbacks: Any, everywhere: bool = True
) -> Any:
    """Distributed `keras.Model.predict`: all rows in the order of the data, on every rank or on the master."""
    feed = feed_of("data to predict", model, x, steps=steps, **data)
    if not feed.distributed:
        raise ValueError(
            "data of each rank's own (shard='file') cannot be put together in order; pass tnt_distribute_dataset=False "
            "and this rank alone predicts its own"
        )
    (batches,) = start.feeds_alike(model, "predict", [feed], {"steps": steps, "tnt_predict_all_devices": everywhere})
    callbacks = placement.arrange_to_predict(callbacks)
    with files.by_master(model):
        outputs, positions = model.predict(batches, verbose=_verbose(verbose), steps=steps, callbacks=callbacks)
    return row_order.in_order(outputs, positions, everywhere)
