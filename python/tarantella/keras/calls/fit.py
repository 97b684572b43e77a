"""One call of fit, evaluate or predict: with several ranks checks and equal starts, then Keras's own loop.

With one rank it is plain Keras, and micro batch sizes become batch sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..._job import runtime, timeline
from ..._job.environment import prints_output
from ...data.feed import Input, feed_of, sized
from .. import differences, files
from ..callbacks import placement
from ..epoch import drift
from . import awake, inputs, recorded, row_numbers, row_order, start, xla


def _verbose(verbose: Any) -> Any:
    return verbose if prints_output() else 0


@timeline.part("fit", timeline.CALL)
def fit(model: Any, training: Input, validation: Input, validation_split: float, **options: Any) -> Any:
    """`keras.Model.fit`. There is no validation where the `x` of `validation` is None, and the split is 0."""
    if runtime.get_size() == 1:
        return _fit_alone(model, sized(training, model), validation, validation_split=validation_split, **options)
    with start.core_errors():
        start.check_compiled(model, "fit")
        if validation_split and validation.x is None:
            training, validation = inputs.split(training, validation, validation_split)
        return _fit_together(model, training, validation, **options)


def _fit_alone(model: Any, training: Input, validation: Input, **options: Any) -> Any:
    recorded.install(model)
    data = None
    if validation.x is not None:
        validation = sized(validation, model)
        data = (validation.x, validation.y, validation.sample_weight)
    options["callbacks"] = recorded.with_epochs(options["callbacks"])
    return model.fit(
        training.x,
        training.y,
        training.batch_size,
        sample_weight=training.sample_weight,
        steps_per_epoch=training.steps,
        shuffle=training.shuffle,
        class_weight=training.class_weight,
        validation_data=data,
        validation_batch_size=validation.batch_size,
        validation_steps=validation.steps,
        **options,
    )


def _fit_together(
    model: Any, training: Input, validation: Input, *, verbose: Any, callbacks: Any, **options: Any
) -> Any:
    feeds = [feed_of(training, model)]
    if validation.x is not None:
        feeds.append(feed_of(inputs.sized_like(feeds[0].batch_size, validation), model))
    options |= {"steps_per_epoch": training.steps, "validation_steps": validation.steps}
    batches = start.feeds_alike(model, "fit", feeds, options | awake.settings())
    callbacks = recorded.with_epochs([drift.BeforeSteps(), *placement.arrange(model, callbacks)])
    differences.say(model)
    explained = row_numbers.explained(model, "train", feeds[0], batches[0].element_spec)
    with xla.off_for_own_data(model, feeds), files.by_master(model), explained, awake.in_steps(model) as switches:
        xla.off_where_impossible(model, "train", "test")
        history = model.fit(
            batches[0],
            validation_data=batches[1] if batches[1:] else None,
            shuffle=False,
            verbose=_verbose(verbose),
            callbacks=[*switches, *callbacks],
            **options,
        )
    # The files that the master's callbacks wrote are there when any rank goes on.
    runtime.context().barrier()
    return history


@timeline.part("evaluate", timeline.CALL)
def evaluate(model: Any, data: Input, *, verbose: Any, callbacks: Any, return_dict: bool) -> Any:
    """`keras.Model.evaluate`: the numbers of all rows, on every rank."""
    if runtime.get_size() == 1:
        data = sized(data, model)
        recorded.install(model)
        return model.evaluate(
            data.x,
            data.y,
            data.batch_size,
            sample_weight=data.sample_weight,
            steps=data.steps,
            verbose=verbose,
            callbacks=callbacks,
            return_dict=return_dict,
        )
    with start.core_errors():
        return _evaluate_together(model, data, verbose, callbacks, return_dict)


def _evaluate_together(model: Any, data: Input, verbose: Any, callbacks: Any, return_dict: bool) -> Any:
    start.check_compiled(model, "evaluate")
    feed = feed_of(data, model)
    (batches,) = start.feeds_alike(model, "evaluate", [feed], {"steps": data.steps})
    xla.off_where_impossible(model, "test")
    callbacks = placement.arrange(model, callbacks)
    explained = row_numbers.explained(model, "test", feed, batches.element_spec)
    with xla.off_for_own_data(model, [feed]), files.by_master(model), explained:
        return model.evaluate(
            batches, verbose=_verbose(verbose), steps=data.steps, callbacks=callbacks, return_dict=return_dict
        )


@timeline.part("predict", timeline.CALL)
def predict(model: Any, data: Input, *, verbose: Any, callbacks: Any, everywhere: bool = True) -> Any:
    """`keras.Model.predict`: all rows in the order of the data, on every rank or on the master.

    Data of this rank's own are predicted by this rank alone.
    """
    if runtime.get_size() == 1 or not data.distributed:
        data = sized(replace(data, distributed=False), model)
        recorded.install(model)
        return model.predict(data.x, data.batch_size, verbose=verbose, steps=data.steps, callbacks=callbacks)
    with start.core_errors():
        return _predict_together(model, data, verbose, callbacks, everywhere)


def _predict_together(model: Any, data: Input, verbose: Any, callbacks: Any, everywhere: bool) -> Any:
    feed = feed_of(data, model)
    if not feed.distributed:
        raise ValueError(
            "predict cannot return the rows of a dataset with shard='file' in order: every rank reads its own files; "
            "to predict them on this rank alone, pass tnt_distribute_dataset=False"
        )
    arguments = {"steps": data.steps, "tnt_predict_all_devices": everywhere}
    (batches,) = start.feeds_alike(model, "predict", [feed], arguments)
    callbacks = placement.arrange_to_predict(callbacks)
    with files.by_master(model):
        outputs, positions = model.predict(batches, verbose=_verbose(verbose), steps=data.steps, callbacks=callbacks)
    return row_order.in_order(outputs, positions, everywhere)
