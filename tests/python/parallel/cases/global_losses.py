"""Losses and metrics of the user's own, which are computed on the labels and predictions of the global batch."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import CLASSES, FEATURES, SAMPLES, Wrap, case, compiled, data, full, trained
from keras import ops

X, LABELS = data()
X = X * np.linspace(0.3, 2, SAMPLES)[:, None]
TARGETS = 2 * X[:, :1] + X[:, 1:2] ** 2


def net(outputs: int = 1, activation: str | None = None, **options: Any) -> Any:
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(5, activation="tanh", **options)(inputs)
    return keras.Model(inputs, keras.layers.Dense(outputs, activation=activation)(hidden))


def fitted(
    wrap: Wrap,
    model: Any,
    y: Any,
    loss: Any,
    x: Any = X,
    batch: int = 16,
    weight: Any = None,
    optimizer: Any = None,
    **options: Any,
) -> Any:
    """The last batch has fewer rows; of 7 rows, a rank has none in the last batch."""
    model = wrap(model)
    model.compile(optimizer or keras.optimizers.SGD(0.05), loss, **options)
    weights = {} if weight is None else {"sample_weight": weight}
    history = model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0, **weights)
    found = model.evaluate(x, y, batch_size=10, sample_weight=weight, verbose=0, return_dict=True)
    return [trained(model, history), found]


def small(wrap: Wrap, model: Any, y: Any, loss: Any, **options: Any) -> Any:
    return fitted(wrap, model, y[:7], loss, x=X[:7], batch=3, **options)


def marked(marker: float) -> Any:
    """Targets of which most of the first rows have no value."""
    y = TARGETS.copy()
    y[: SAMPLES // 2 : 3] = y[1 : SAMPLES // 2 : 3] = marker
    return y


def valid(marker: float) -> Any:
    """A mean over valid labels: as many as there are in the global batch."""

    def loss(true: Any, predicted: Any) -> Any:
        is_valid = ops.logical_not(ops.isnan(true)) if np.isnan(marker) else ops.not_equal(true, marker)
        errors = ops.where(is_valid, (ops.where(is_valid, true, 0.0) - predicted) ** 2, 0.0)
        return ops.sum(errors) / (ops.sum(ops.cast(is_valid, errors.dtype)) + 1e-7)

    return loss


@case
def means_over_valid_labels(wrap: Wrap) -> Any:
    found = [fitted(wrap, net(kernel_regularizer="l2"), marked(each), valid(each)) for each in (-1, -100.0, 255)]
    return [*found, small(wrap, net(), marked(-1.0), valid(-1.0), optimizer=keras.optimizers.Adam(0.01))]


@case
def means_over_labels_that_are_numbers(wrap: Wrap) -> Any:
    model = wrap(net())
    model.compile(keras.optimizers.SGD(0.05), valid(np.nan))
    for first in (0, 16, 32):
        model.train_on_batch(X[first : first + 16], marked(np.nan)[first : first + 16])
    return [model.get_weights(), model.test_on_batch(X[:9], marked(np.nan)[:9])]


def masked_words(true: Any, predicted: Any) -> Any:
    losses = keras.losses.sparse_categorical_crossentropy(ops.maximum(true, 0), predicted, from_logits=True)
    chosen = ops.cast(true >= 0, losses.dtype)
    return ops.sum(losses * chosen) / ops.maximum(ops.sum(chosen), 1.0)


@case
def masked_language_model(wrap: Wrap) -> Any:
    random = np.random.default_rng(2)
    words = random.integers(1, 11, (SAMPLES, 6))
    labels = np.where(random.random(words.shape) < np.linspace(0.1, 0.8, SAMPLES)[:, None], words, -1)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Embedding(11, 4), keras.layers.Dense(11)])
    return fitted(wrap, model, labels, masked_words, x=words)


def dice(true: Any, predicted: Any) -> Any:
    true = ops.cast(true, predicted.dtype)
    return 1 - (2 * ops.sum(true * predicted) + 1) / (ops.sum(true) + ops.sum(predicted) + 1)


def count_of_hits(true: Any, predicted: Any) -> Any:
    return ops.sum(ops.cast((predicted > 0.5) == (true > 0.5), "float64"))


def ratio_of_each_row(true: Any, predicted: Any) -> Any:
    return ops.abs(predicted[:, 0]) / ops.mean(ops.abs(predicted))


@case
def overlaps(wrap: Wrap) -> Any:
    """Dice as a loss of the user's and as Keras's, which is not of single rows either."""
    y = (TARGETS > 0).astype("float64")
    metrics = [dice, count_of_hits, ratio_of_each_row]
    return [
        fitted(wrap, net(activation="sigmoid"), y, dice, metrics=metrics),
        small(wrap, net(activation="sigmoid"), y, dice, metrics=metrics),
        fitted(wrap, net(activation="sigmoid"), y, keras.losses.Dice()),
        fitted(wrap, net(activation="sigmoid"), y, "dice", metrics=[keras.metrics.CosineSimilarity(axis=0)]),
    ]


def nearest(true: Any, predicted: Any) -> Any:
    """A value for each row, which looks at all others of its class."""
    distances = ops.sum((predicted[:, None] - predicted[None]) ** 2, -1)
    alike = ops.cast(ops.equal(ops.reshape(true, (-1, 1)), ops.reshape(true, (1, -1))), distances.dtype)
    far = ops.relu(0.5 - distances) * (1 - alike)
    return ops.mean(distances * alike + far, axis=-1)


@case
def pairs_within_the_batch(wrap: Wrap) -> Any:
    triplet = keras.losses.Circle() if hasattr(keras.losses, "Circle") else nearest
    return [
        fitted(wrap, net(3), LABELS, nearest),
        small(wrap, net(3), LABELS, nearest, run_eagerly=True),
        fitted(wrap, net(3), LABELS, triplet),
    ]


class Reduced(keras.losses.Loss):
    def call(self, true: Any, predicted: Any) -> Any:
        return nearest(true, predicted)


@case
def pairs_with_every_reduction(wrap: Wrap) -> Any:
    kinds = ("sum", "none", "mean_with_sample_weight")
    weight = np.linspace(0.1, 2, SAMPLES)
    return [
        *(
            fitted(wrap, net(3), LABELS, Reduced(reduction=kind), optimizer=keras.optimizers.SGD(0.002))
            for kind in kinds
        ),
        *(fitted(wrap, net(3), LABELS, Reduced(reduction=kind), weight=weight) for kind in kinds[2:]),
        fitted(wrap, net(3), LABELS, nearest, weight=weight, weighted_metrics=[nearest]),
        fitted(wrap, net(), marked(-1.0), valid(-1.0), weight=weight),
    ]


class Heated(keras.losses.Loss):
    """Has a variable of its own, which is trained."""

    def __init__(self) -> None:
        super().__init__(name="heated")
        self.heat = keras.Variable(1.0, dtype="float64", name="heat")

    def call(self, true: Any, predicted: Any) -> Any:
        logits = predicted @ ops.transpose(predicted) * self.heat
        alike = ops.cast(ops.equal(ops.reshape(true, (-1, 1)), ops.reshape(true, (1, -1))), logits.dtype)
        return ops.mean(ops.logsumexp(logits, axis=-1)) - ops.sum(alike * logits) / ops.sum(alike)


class Heating(keras.Model):
    def __init__(self, loss: Heated) -> None:
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(5, "tanh"), keras.layers.Dense(3)
        self.heat = loss.heat

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(x))

    @property
    def trainable_variables(self) -> Any:
        return [*super().trainable_variables, self.heat]


@case
def with_a_trained_variable(wrap: Wrap) -> Any:
    found = []
    for samples, batch in ((SAMPLES, 16), (7, 3)):
        loss = Heated()
        model = Heating(loss)
        model.build((None, FEATURES))
        found += [fitted(wrap, model, LABELS[:samples], loss, x=X[:samples], batch=batch), np.asarray(loss.heat)]
    return found


@case
def that_captures_a_kernel(wrap: Wrap) -> Any:
    model = net(3)
    kernel = model.layers[1].kernel

    def loss(true: Any, predicted: Any) -> Any:
        return ops.mean(nearest(true, predicted)) + 0.1 * ops.sum(kernel**2) / ops.sum(ops.abs(predicted))

    return fitted(wrap, model, LABELS, loss)


class Adds(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(ops.mean(ops.square(x)))
        return x


@full
@case
def beside_other_losses(wrap: Wrap) -> Any:
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(6, "tanh", kernel_regularizer="l1", activity_regularizer="l2")(inputs)
    hidden = Adds()(hidden)
    outputs = {"pairs": keras.layers.Dense(3)(hidden), "value": keras.layers.Dense(1)(hidden)}
    model = keras.Model(inputs, outputs | {"free": keras.layers.Dense(2)(hidden)})
    return fitted(
        wrap,
        model,
        {"pairs": LABELS, "value": TARGETS, "free": TARGETS},
        {"pairs": nearest, "value": "mse", "free": None},
        loss_weights={"pairs": 0.7, "value": 0.2, "free": 1.0},
        metrics={"value": ["mae", dice], "pairs": [nearest]},
    )


def of_sequences(true: Any, predicted: Any) -> Any:
    return (predicted - ops.mean(predicted)) ** 2 + (true - predicted) ** 2


@case
def masks_travel_along(wrap: Wrap) -> Any:
    random = np.random.default_rng(4)
    x = random.normal(size=(SAMPLES, 6, 2))
    x[np.arange(6) >= random.integers(1, 7, SAMPLES)[:, None]] = 0
    model = keras.Sequential(
        [
            keras.Input((6, 2)),
            keras.layers.Masking(),
            keras.layers.LSTM(3, return_sequences=True),
            keras.layers.Dense(1),
        ]
    )
    return fitted(wrap, model, random.normal(size=(SAMPLES, 6, 1)), of_sequences, x=x)


def of_probabilities(true: Any, predicted: Any) -> Any:
    """Keras takes the logits of a softmax, or it would clip probabilities."""
    losses = keras.losses.sparse_categorical_crossentropy(true, predicted)
    return ops.sum(losses) / ops.sum(ops.cast(losses > 0.1, losses.dtype) + 1)


@case
def logits_travel_along(wrap: Wrap) -> Any:
    x = 40 * X  # probabilities near 0 and 1
    return [
        fitted(
            wrap, net(CLASSES, "softmax"), LABELS, of_probabilities, x=x, run_eagerly=eager, metrics=[of_probabilities]
        )
        for eager in (False, True)
    ]


class Extremes(keras.metrics.Metric):
    """The largest value, the last one, and one that looks at all rows."""

    def __init__(self) -> None:
        super().__init__(name="extremes", dtype="float64")
        self.largest = self.add_variable((), keras.initializers.Constant(-1e9), name="largest")
        self.last = self.add_variable((), "zeros", name="last")
        self.spread = self.add_variable((), "zeros", name="spread")

    def update_state(self, true: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.largest.assign(ops.maximum(self.largest, ops.max(predicted)))
        self.last.assign(predicted[-1, 0])
        self.spread.assign_add(ops.std(predicted))

    def result(self) -> Any:
        return self.largest + 10 * self.last + 100 * self.spread


class Counted(keras.metrics.Mean):
    def update_state(self, true: Any, predicted: Any, sample_weight: Any = None) -> Any:
        return super().update_state(ops.sum(ops.abs(predicted)) / ops.max(ops.abs(true)))


@case
def metrics_that_look_at_all_rows(wrap: Wrap) -> Any:
    found = []
    for eager in (False, True):
        metrics = [Extremes(), Counted(name="counted")]
        model = compiled(wrap(net()), keras.optimizers.SGD(0.05), loss="mse", metrics=metrics, run_eagerly=eager)
        history = model.fit(X, TARGETS, batch_size=16, epochs=2, shuffle=False, verbose=0, validation_data=(X, TARGETS))
        found += [trained(model, history), [np.asarray(v) for metric in metrics for v in metric.variables]]
        found.append(
            small(wrap, net(), TARGETS, "mse", metrics=[Extremes(), Counted(name="counted")], run_eagerly=eager)
        )
    return found


@case
def declared_to_be_sums_or_means(wrap: Wrap) -> Any:
    def total(true: Any, predicted: Any) -> Any:
        return 0.01 * ops.sum((true - predicted) ** 2)

    def mean(true: Any, predicted: Any) -> Any:
        return ops.mean((true - predicted) ** 2)

    total.tnt_reduction = "sum"  # type: ignore[attr-defined]
    mean.tnt_reduction = "mean"  # type: ignore[attr-defined]
    return [fitted(wrap, net(), TARGETS, loss, metrics=[mean]) for loss in (total, mean)]


@case
def compiled_without_xla(wrap: Wrap) -> Any:
    return fitted(wrap, net(3), LABELS, nearest, jit_compile=True)


@case
def several_steps_per_execution(wrap: Wrap) -> Any:
    return fitted(wrap, net(3), LABELS, nearest, steps_per_execution=2, metrics=[nearest])


class Own(keras.Model):
    """A user's step around compute_loss, which clips."""

    tnt_reduction = "mean"

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        found, norm = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.1)
        self.optimizer.apply_gradients(zip(found, self.trainable_variables, strict=True))
        return self.compute_metrics(x, y, predicted) | {"norm": norm}


class InBranches(Own):
    """Gathers in branches and in a function, beside what its metrics gather."""

    @tf.function(reduce_retracing=True)
    def twice(self, x: Any, y: Any, predicted: Any) -> Any:
        return self.compute_loss(x, y, predicted) + self.compute_loss(x, y, 2 * predicted)

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **options: Any) -> Any:
        is_even = self.optimizer.iterations % 2 == 0
        loss = super().compute_loss
        return tf.cond(is_even, lambda: loss(x, y, y_pred), lambda: 0.5 * loss(x, y, y_pred + 1))

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.twice(x, y, predicted)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return self.compute_metrics(x, y, predicted)


@case
def in_branches_and_functions(wrap: Wrap) -> Any:
    inputs = keras.Input((FEATURES,))
    out = keras.layers.Dense(3)(keras.layers.Dense(5, "tanh")(inputs))
    return [make(wrap, InBranches(inputs, out), LABELS, nearest, metrics=[nearest]) for make in (fitted, small)]


@case
def in_a_step_of_the_users(wrap: Wrap) -> Any:
    inputs = keras.Input((FEATURES,))
    out = keras.layers.Dense(3)(keras.layers.Dense(5, "tanh", kernel_regularizer="l2")(inputs))
    return [
        fitted(wrap, Own(inputs, out), LABELS, nearest, metrics=[nearest]),
        small(wrap, Own(inputs, out), LABELS, nearest, metrics=[nearest]),
    ]


def custom(kind: type, **options: Any) -> Any:
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(5, activation="tanh", kernel_regularizer="l2", activity_regularizer="l1")(inputs)
    return kind(inputs, keras.layers.Dense(options.pop("outputs", 1))(hidden), **options)


class OfPositives(keras.Model):
    """As detectors do: divides by the positives of the batch, and adds what layers add."""

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        positive = ops.cast(y > 0, y_pred.dtype)
        loss = ops.sum(positive * (y - y_pred) ** 2) / ops.maximum(ops.sum(positive), 1.0)
        for each in self.losses:
            loss += each
        return loss


class BesidesSuper(keras.Model):
    """Uses the inputs, too, and the losses given to compile."""

    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, **options: Any) -> Any:
        loss = super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight)
        return loss + ops.std(y_pred) * ops.mean(ops.abs(x))


class Tracked(keras.Model):
    """The example of Keras's documentation, with a tracker of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tracker = keras.metrics.Mean(name="loss")

    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        loss = ops.sqrt(ops.mean((y_pred - y) ** 2)) + sum(self.losses)
        self.tracker.update_state(loss)
        return loss

    def reset_metrics(self) -> None:
        self.tracker.reset_state()

    @property
    def metrics(self) -> Any:
        return [self.tracker]


class OfItsOwn(keras.Model):
    """Uses what its call has left: this rank's rows. It is a mean over rows."""

    def call(self, x: Any, training: bool = False) -> Any:
        self.left = super().call(x)
        return self.left

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **options: Any) -> Any:
        return ops.mean((y - self.left) ** 2)


class InAStep(OfPositives):
    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        found, norm = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.1)
        self.optimizer.apply_gradients(zip(found, self.trainable_variables, strict=True))
        return {"loss": loss, "norm": norm}


@case
def own_compute_loss(wrap: Wrap) -> Any:
    weight = np.linspace(0.1, 2, SAMPLES)
    return [
        fitted(wrap, custom(OfPositives), TARGETS, None),
        small(wrap, custom(OfPositives), TARGETS, None),
        fitted(wrap, custom(BesidesSuper), marked(-1.0), valid(-1.0), metrics=["mae", dice]),
        fitted(wrap, custom(BesidesSuper), TARGETS, "mse", weight=weight, weighted_metrics=["mae"]),
        fitted(wrap, custom(Tracked), TARGETS, None),
        fitted(wrap, custom(OfItsOwn), TARGETS, None),
        fitted(wrap, custom(InAStep), TARGETS, None),
    ]


@case
def own_compute_loss_eagerly(wrap: Wrap) -> Any:
    kinds = (OfPositives, BesidesSuper, Tracked)
    return [small(wrap, custom(each), TARGETS, "mse", run_eagerly=True) for each in kinds]


@case
def own_compute_loss_on_batches(wrap: Wrap) -> Any:
    model = wrap(custom(OfPositives))
    model.compile(keras.optimizers.SGD(0.05))
    found = [model.train_on_batch(X[i : i + 9], TARGETS[i : i + 9]) for i in (0, 9, 18)]
    return [found, model.test_on_batch(X, TARGETS), model.get_weights()]


class OfTheShape(keras.Model):
    """Uses no values of the inputs, but their number."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **options: Any) -> Any:
        return ops.sqrt(ops.sum((y - y_pred) ** 2) / ops.cast(ops.shape(x)[0], y_pred.dtype))


class OfTheInputsWhenTested(keras.Model):
    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        loss = ops.sqrt(ops.mean((y - y_pred) ** 2))
        return loss if training else loss + ops.max(x)


class OfTwoOutputs(keras.Model):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **options: Any) -> Any:
        return super().compute_loss(x, y, y_pred) + ops.std(y_pred[0])


@case
def own_compute_loss_of_other_parts(wrap: Wrap) -> Any:
    found = []
    for eager in (False, True):
        for kind in (OfTheShape, OfTheInputsWhenTested):
            found.append(small(wrap, custom(kind), TARGETS, None, run_eagerly=eager))
        inputs = keras.Input((FEATURES,))
        hidden = keras.layers.Dense(5, "tanh")(inputs)
        model = wrap(OfTwoOutputs(inputs, [keras.layers.Dense(1, name=name)(hidden) for name in ("a", "b")]))
        model.compile(keras.optimizers.SGD(0.05), ["mse", "mae"], run_eagerly=eager)
        history = model.fit(X[:7], [TARGETS[:7], TARGETS[:7]], batch_size=3, epochs=2, shuffle=False, verbose=0)
        found.append(trained(model, history))
    return found


class Flat(keras.losses.Loss):
    def call(self, true: Any, predicted: Any) -> Any:
        return ops.reshape((true - predicted) ** 2, (-1,)) / (1 + ops.std(predicted))


@case
def predictions_of_other_numbers_of_rows(wrap: Wrap) -> Any:
    """Each row has three, and a loss without a reduction has three values."""
    x = np.stack([X, X + 1, X * 0.5], 1)
    y = np.stack([TARGETS, TARGETS * 2, TARGETS - 1], 1)

    def loss(true: Any, predicted: Any) -> Any:
        return ops.mean((ops.reshape(true, (-1, 1)) - predicted) ** 2) / ops.std(predicted)

    found = []
    for n, batch in ((SAMPLES, 16), (7, 3)):
        inputs = keras.Input((3, FEATURES))
        hidden = keras.layers.Dense(1)(keras.layers.Dense(4, "tanh")(inputs))
        flat = keras.layers.Lambda(lambda z: ops.reshape(z, (-1, 1)), output_shape=(1,))(hidden)
        model = wrap(keras.Model(inputs, flat))
        model.compile(keras.optimizers.SGD(0.05), loss)
        history = model.fit(x[:n], y[:n, :, 0], batch_size=batch, epochs=2, shuffle=False, verbose=0)
        found.append(trained(model, history))
        model = wrap(keras.Model(inputs, hidden))
        model.compile(keras.optimizers.SGD(0.01), Flat(reduction="none"))
        history = model.fit(x[:n], y[:n], batch_size=batch, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    return found


class Equal(keras.losses.Loss):
    """Has no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]

    def call(self, true: Any, predicted: Any) -> Any:
        return ops.std(true - predicted)


@case
def declared_later(wrap: Wrap) -> Any:
    def error(true: Any, predicted: Any) -> Any:
        return ops.mean(ops.abs(true - predicted), -1)

    metric = keras.metrics.MeanMetricWrapper(error, name="error", dtype="float64")
    model, found = wrap(net()), []
    for reduction in (None, "mean"):
        error.tnt_reduction = reduction  # type: ignore[attr-defined]
        model.compile(keras.optimizers.SGD(0.05), Equal(), metrics=[metric])
        history = model.fit(X[:7], TARGETS[:7], batch_size=3, shuffle=False, verbose=0)
        found += [trained(model, history), model.evaluate(X[:7], TARGETS[:7], batch_size=3, verbose=0)]
    return found


class Penalized(Own):
    """With a penalty on the gradient of the loss, as an outer tape sees it."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = self.compute_loss(x, y, self(x, training=True))
            slopes = inner.gradient(loss, self.trainable_variables)
            total = loss + 0.01 * tf.add_n([tf.reduce_sum(each**2) for each in slopes])
        self.optimizer.apply(outer.gradient(total, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@case
def under_a_penalty_on_gradients(wrap: Wrap) -> Any:
    inputs = keras.Input((FEATURES,))
    out = keras.layers.Dense(3)(keras.layers.Dense(5, "tanh")(inputs))
    rate = keras.optimizers.SGD(0.01)
    return [make(wrap, Penalized(inputs, out), LABELS, nearest, optimizer=rate) for make in (fitted, small)]


def along_the_rows_of_a_table(true: Any, predicted: Any) -> Any:
    return ops.mean(keras.losses.categorical_crossentropy(true, predicted, axis=1)) / ops.std(predicted)


@case
def logits_of_a_softmax_along_another_axis(wrap: Wrap) -> Any:
    inputs = keras.Input((3, FEATURES))
    model = keras.Model(inputs, keras.layers.Softmax(axis=1)(keras.layers.Dense(2)(inputs)))
    x = 40 * np.stack([X, X + 0.1, X * 0.5], 1)
    y = np.eye(3)[np.arange(SAMPLES) % 3][:, :, None] * np.ones((1, 1, 2))
    return fitted(wrap, model, y, along_the_rows_of_a_table, x=x, optimizer=keras.optimizers.SGD(0.001))
