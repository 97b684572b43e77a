"""What a user's `train_step`, or optimizer, does between the tape and the update: it sees sums over the ranks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import FEATURES, SAMPLES, Wrap, case, data, full, trained
from keras import ops

# Rows of very different sizes: ranks have very different gradients.
X = data()[0] * np.linspace(0.1, 3, SAMPLES)[:, None]
Y = 2 * X[:, :1] + data()[0][:, 1:2]

Gradients = list[Any]


class Stepping(keras.Model):
    """Keras's guide on custom steps, with something between tape and update."""

    tnt_reduction = "mean"

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y)
        variables = self.trainable_variables
        self.update(self.between(tape.gradient(loss, variables), variables), variables)
        self.metrics[0].update_state(loss)
        return {"loss": self.metrics[0].result()}

    def loss_of(self, x: Any, y: Any) -> Any:
        return self.compute_loss(x, y, self(x, training=True))

    def between(self, gradients: Gradients, variables: Any) -> Gradients:
        return gradients

    def update(self, gradients: Gradients, variables: Any) -> None:
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))


def net(kind: type = Stepping, units: int = 4, outputs: int = 1) -> Any:
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(units, activation="tanh")(inputs)
    return kind(inputs, keras.layers.Dense(outputs)(hidden))


def stepped(
    wrap: Wrap, kind: Any, optimizer: Any = None, samples: int = SAMPLES, batch: int = 16, **options: Any
) -> dict[str, Any]:
    model = kind if isinstance(kind, keras.Model) else net(kind)
    options.setdefault("loss", "mse")
    model.compile(optimizer or keras.optimizers.SGD(0.05), **options)
    model.optimizer.build(model.trainable_variables)
    model = wrap(model)
    history = model.fit(X[:samples], Y[:samples], batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return trained(model, history)


def between(change: Callable[[Gradients], Gradients]) -> type:
    return type("Between", (Stepping,), {"between": lambda self, gradients, variables: change(gradients)})


def clipped(gradients: Gradients) -> Gradients:
    return list(tf.clip_by_global_norm(gradients, 0.5)[0])


@case
def clipped_in_a_step(wrap: Wrap) -> Any:
    return [stepped(wrap, between(clipped)), stepped(wrap, between(clipped), samples=7, batch=3)]


@case
def clipped_in_an_eager_step(wrap: Wrap) -> Any:
    return stepped(wrap, between(clipped), run_eagerly=True)


@case
def clipped_in_a_compiled_step(wrap: Wrap) -> Any:
    return stepped(wrap, between(clipped), jit_compile=True)


@case
def clipped_in_several_steps_per_execution(wrap: Wrap) -> Any:
    return stepped(wrap, between(clipped), steps_per_execution=3)


@case
def norms_in_the_logs(wrap: Wrap) -> Any:
    class Logging(Stepping):
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            with tf.GradientTape(persistent=True) as tape:
                loss, size = self.loss_of(x, y), ops.mean(self(x) ** 2)
            variables = self.trainable_variables
            norm = tf.linalg.global_norm(tape.gradient(size, variables))
            tape.gradient(size, variables)  # which nothing uses
            self.update(tape.gradient(loss, variables)[:3], variables[:3])
            return {"norm": norm}

    return stepped(wrap, Logging)


class Clipping(keras.optimizers.SGD):
    def apply_gradients(self, grads_and_vars: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        return super().apply_gradients(list(zip(clipped(list(gradients)), variables, strict=True)))


@case
def clipped_in_an_optimizer(wrap: Wrap) -> Any:
    return stepped(wrap, net(keras.Model), Clipping(0.1))


@case
def clipped_inside_loss_scaling(wrap: Wrap) -> Any:
    class Applying(keras.optimizers.SGD):
        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            return super().apply(clipped(list(grads)), trainable_variables)

    scaling = keras.optimizers.LossScaleOptimizer(Applying(0.1), initial_scale=64.0, dynamic_growth_steps=3)
    return stepped(wrap, net(keras.Model), scaling)


@case
def without_an_optimizer(wrap: Wrap) -> Any:
    class Assigning(Stepping):
        def update(self, gradients: Gradients, variables: Any) -> None:
            for variable, gradient in zip(variables, gradients, strict=True):
                variable.assign_sub(0.05 * gradient)

    return stepped(wrap, Assigning)


@case
def kept_from_step_to_step(wrap: Wrap) -> Any:
    class Momentum(Stepping):
        def between(self, gradients: Gradients, variables: Any) -> Gradients:
            result = [g + 0.5 * last for g, last in zip(gradients, self.last, strict=True)]
            for last, gradient in zip(self.last, gradients, strict=True):
                last.assign(gradient)
            return result

    model = net(Momentum)
    model.last = [tf.Variable(tf.zeros_like(v.value), trainable=False) for v in model.trainable_variables]
    return stepped(wrap, model)


@case
def signs_and_numbers_that_are_none(wrap: Wrap) -> Any:
    def finite(gradients: Gradients) -> Gradients:
        return [tf.where(tf.math.is_finite(g), tf.sign(g), tf.zeros_like(g)) for g in gradients]

    class Wrong(Stepping):
        def loss_of(self, x: Any, y: Any) -> Any:
            return super().loss_of(tf.where(tf.abs(x) > 5, tf.constant(np.nan, x.dtype), x), y)

        def between(self, gradients: Gradients, variables: Any) -> Gradients:
            return finite(gradients)

    return stepped(wrap, Wrong)


def applied_if(is_good: Callable[[Gradients], Any]) -> type:
    class Conditional(Stepping):
        def update(self, gradients: Gradients, variables: Any) -> None:
            tf.cond(is_good(gradients), lambda: self.optimizer.apply(gradients, variables), lambda: None)

    return Conditional


@case
def applied_where_the_norm_is_small(wrap: Wrap) -> Any:
    return stepped(wrap, applied_if(lambda gradients: tf.linalg.global_norm(gradients) < 4.0))


@case
def applied_where_python_finds_the_norm_small(wrap: Wrap) -> Any:
    class Conditional(Stepping):
        def update(self, gradients: Gradients, variables: Any) -> None:
            if float(tf.linalg.global_norm(gradients)) < 4.0:
                self.optimizer.apply(gradients, variables)

    return stepped(wrap, Conditional, run_eagerly=True)


@case
def rate_by_the_norm(wrap: Wrap) -> Any:
    class Rated(Stepping):
        def update(self, gradients: Gradients, variables: Any) -> None:
            rate = 0.1 / (1.0 + tf.linalg.global_norm(gradients))
            self.optimizer.learning_rate.assign(tf.cast(rate, self.optimizer.learning_rate.dtype))
            super().update(gradients, variables)

    return stepped(wrap, Rated)


class Sharpness(Stepping):
    """SAM: moves by the gradient and back."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        variables = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y)
        gradients = tape.gradient(loss, variables)
        moves = [0.05 * g / (tf.linalg.global_norm(gradients) + 1e-12) for g in gradients]
        for variable, move in zip(variables, moves, strict=True):
            variable.assign_add(move)
        with tf.GradientTape() as tape:
            moved = self.loss_of(x, y)
        gradients = tape.gradient(moved, variables)
        for variable, move in zip(variables, moves, strict=True):
            variable.assign_sub(move)
        self.update(gradients, variables)
        return {"loss": loss}


@case
def sharpness_aware(wrap: Wrap) -> Any:
    return stepped(wrap, Sharpness)


@full
@case
def sharpness_aware_eagerly(wrap: Wrap) -> Any:
    return stepped(wrap, Sharpness, run_eagerly=True)


class Surgery(Stepping):
    """PCGrad: a call of the tape for each task and variable, then projections."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        variables = self.trainable_variables
        with tf.GradientTape(persistent=True) as tape:
            out = self(x, training=True)
            losses = [ops.mean((out - y) ** 2), ops.mean(ops.abs(out - 1)), ops.mean(out**2)]
        tasks = [[tape.gradient(loss, variable) for variable in variables] for loss in losses]
        flat = [tf.concat([tf.reshape(g, [-1]) for g in task], 0) for task in tasks]
        total = tf.zeros_like(flat[0])
        for i, one in enumerate(flat):
            for j, other in enumerate(flat):
                if i != j:
                    together = tf.minimum(tf.reduce_sum(one * other), 0.0)
                    one = one - together * other / tf.reduce_sum(other * other)
            total += one
        parts = tf.split(total, [int(np.prod(v.shape)) for v in variables])
        self.update([tf.reshape(p, v.shape) for p, v in zip(parts, variables, strict=True)], variables)
        return {"loss": losses[0]}


@case
def gradient_surgery(wrap: Wrap) -> Any:
    return stepped(wrap, Surgery)


@case
def gradient_surgery_compiled(wrap: Wrap) -> Any:
    return stepped(wrap, Surgery, jit_compile=True)


@full
@case
def gradient_surgery_eagerly(wrap: Wrap) -> Any:
    return stepped(wrap, Surgery, run_eagerly=True)


class Penalized(Stepping):
    """A penalty on the gradient of the weights, differentiated by an outer tape."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        variables = self.trainable_variables
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = self.loss_of(x, y)
            slopes = inner.gradient(loss, variables)
            total = loss + 0.01 * tf.add_n([tf.reduce_sum(g**2) for g in slopes])
        self.update(outer.gradient(total, variables), variables)
        return {"loss": loss}


@case
def penalty_on_the_gradient_of_weights(wrap: Wrap) -> Any:
    return stepped(wrap, Penalized, keras.optimizers.SGD(0.01))


@case
def penalty_on_the_gradient_of_weights_eagerly(wrap: Wrap) -> Any:
    return stepped(wrap, Penalized, keras.optimizers.SGD(0.01), run_eagerly=True)


@case
def learning_to_learn(wrap: Wrap) -> Any:
    class Meta(Stepping):  # MAML: the outer gradient goes through an inner update
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            kernel, bias = self.trainable_variables[:2]
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    loss = ops.mean((x @ kernel.value + bias.value - y) ** 2)
                by_kernel, by_bias = inner.gradient(loss, [kernel, bias])
                out = x @ (kernel.value - 0.01 * by_kernel) + bias.value - 0.01 * by_bias
                after = ops.mean((out - y) ** 2)
            self.update(outer.gradient(after, [kernel, bias]), [kernel, bias])
            return {"loss": after}

    return stepped(wrap, Meta)


class Accumulating(Stepping):
    """Adds gradients up in variables, and applies them every other batch."""

    def prepared(self) -> Any:
        self.count = tf.Variable(0, trainable=False)
        self.kept = [tf.Variable(tf.zeros_like(v.value), trainable=False) for v in self.trainable_variables]
        return self

    def update(self, gradients: Gradients, variables: Any) -> None:
        for kept, gradient in zip(self.kept, gradients, strict=True):
            kept.assign_add(gradient / 2)
        self.count.assign_add(1)
        tf.cond(self.count % 2 == 0, lambda: self.apply_kept(variables), lambda: None)

    def apply_kept(self, variables: Any) -> None:
        self.optimizer.apply_gradients(zip([kept.value() for kept in self.kept], variables, strict=True))
        for kept in self.kept:
            kept.assign(tf.zeros_like(kept))


@case
def accumulated_by_hand(wrap: Wrap) -> Any:
    return stepped(wrap, net(Accumulating).prepared())


class AccumulatingInWeights(Accumulating):
    def prepared(self) -> Any:
        self.count = self.add_weight(dtype="int32", initializer="zeros", trainable=False, name="count")
        self.kept = [
            self.add_weight(v.shape, "zeros", trainable=False, name=f"kept_{i}")
            for i, v in enumerate(self.trainable_variables)
        ]
        return self

    def update(self, gradients: Gradients, variables: Any) -> None:
        tf.gather_nd(self.kept[1].value, self.places)  # by this rank's rows
        super().update(gradients, variables)

    def train_step(self, batch: Any) -> Any:
        self.places = tf.cast(batch[0][:, :1] > 0, "int32")
        return super().train_step(batch)

    def apply_kept(self, variables: Any) -> None:
        self.optimizer.apply_gradients(zip([kept.value for kept in self.kept], variables, strict=True))
        for kept in self.kept:
            kept.assign(ops.zeros_like(kept))


@case
def accumulated_in_weights(wrap: Wrap) -> Any:
    """A rank without rows, too, keeps what it has assigned from sums."""
    return [stepped(wrap, net(AccumulatingInWeights).prepared(), samples=n, batch=b) for n, b in ((7, 3), (33, 16))]


class Alternating(Accumulating):
    """Applies what it has kept in the branch that is traced first."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        variables = self.trainable_variables

        def keep() -> None:
            with tf.GradientTape() as tape:
                loss = self.loss_of(x, y)
            for kept, gradient in zip(self.kept, tape.gradient(loss, variables), strict=True):
                kept.assign_add(gradient)

        self.count.assign_add(1)
        tf.cond(self.count % 2 == 0, lambda: self.apply_kept(variables), keep)
        return {"count": self.count}


class AlternatingSums(Alternating):
    tnt_reduction = "sum"

    def loss_of(self, x: Any, y: Any) -> Any:
        return ops.sum((self(x, training=True) - y) ** 2)


@case
def applied_in_the_branch_that_is_traced_first(wrap: Wrap) -> Any:
    return [stepped(wrap, net(each).prepared(), keras.optimizers.SGD(0.01)) for each in (Alternating, AlternatingSums)]


@case
def taken_in_a_branch_by_a_counter(wrap: Wrap) -> Any:
    class Sometimes(Accumulating):
        def train_step(self, batch: Any) -> Any:
            self.count.assign_add(1)
            step = super(Accumulating, type(self)).train_step
            loss = tf.cond(self.count % 2 == 0, lambda: step(self, batch)["loss"], lambda: tf.zeros((), "float64"))
            return {"loss": loss}

        def update(self, gradients: Gradients, variables: Any) -> None:
            self.optimizer.apply(gradients, variables)

    return stepped(wrap, net(Sometimes).prepared())


@case
def taken_in_a_loop(wrap: Wrap) -> Any:
    class Looping(Stepping):
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            variables = self.trainable_variables

            def turn(i: Any, *sums: Any) -> Any:
                with tf.GradientTape() as tape:
                    loss = self.loss_of(x * tf.cast(i + 1, x.dtype), y)
                found = tape.gradient(loss, variables)
                return (i + 1, *(s + g / tf.norm(g) for s, g in zip(sums, found, strict=True)))

            start = [tf.zeros(v.shape, v.dtype) for v in variables]
            _, *sums = tf.while_loop(lambda i, *_: i < 5, turn, (0, *start))
            self.update(sums, variables)
            return {"first": sums[0][0, 0]}

    return stepped(wrap, Looping, keras.optimizers.SGD(0.01))


class Twice(Stepping):
    """A function of the user's that is traced once and runs twice in a step."""

    @tf.function(reduce_retracing=True)
    def taken(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = ops.mean((self(x, training=True) - y) ** 2)
        return loss, tape.gradient(loss, self.trainable_variables)

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        loss, one = self.taken(x, y)
        _, other = self.taken(2 * x, y)
        both = [g / (tf.norm(g) + 1e-3) + h / (tf.norm(h) + 1e-3) for g, h in zip(one, other, strict=True)]
        self.update(both, self.trainable_variables)
        return {"loss": loss}


@case
def a_function_that_runs_twice(wrap: Wrap) -> Any:
    return stepped(wrap, Twice, keras.optimizers.SGD(0.01))


class TwiceSummed(Twice):
    tnt_reduction = "sum"

    @tf.function(reduce_retracing=True)
    def taken(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = ops.sum((self(x, training=True) - y) ** 2)
        return loss, tape.gradient(loss, self.trainable_variables)


@case
def a_function_in_fits_of_other_batch_sizes(wrap: Wrap) -> Any:
    found = []
    for kind in (Twice, TwiceSummed):
        inner = net(kind)
        inner.compile(keras.optimizers.SGD(0.01), "mse")
        inner.taken(tf.constant(X[:4]), tf.constant(Y[:4]))  # traced before fit, without ranks
        model = wrap(inner)
        for batch in (16, 8, 12, 5):
            history = model.fit(X, Y, batch_size=batch, shuffle=False, verbose=0)
        found.append(trained(model, history))
    return found


class Helped(Stepping):
    """With a function that takes any number of rows, so that TensorFlow would trace it once."""

    def build_helper(self) -> None:
        rows = [tf.TensorSpec([None, each.shape[1]], "float64") for each in (X, Y)]

        @tf.function(input_signature=rows)
        def helper(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = ops.mean((self(x, training=True) - y) ** 2)
            return clipped(tape.gradient(loss, self.trainable_variables))

        self.helper = helper

    def train_step(self, batch: Any) -> Any:
        self.update(self.helper(*batch), self.trainable_variables)
        return {"size": ops.mean(batch[1])}


@case
def a_function_that_is_called_outside_of_steps(wrap: Wrap) -> Any:
    found = []
    for samples, batch in ((SAMPLES, 16), (33, 16), (7, 3)):
        for eager in (False, True):
            model = net(Helped)
            model.build_helper()
            before = model.helper(X[:4], Y[:4])
            result = stepped(wrap, model, samples=samples, batch=batch, run_eagerly=eager)
            found.append([before, result, model.helper(X[:4], Y[:4])])
    model = net(Helped)  # which the trace that builds losses and metrics calls first
    model.build_helper()
    found.append(stepped(wrap, model, samples=33))
    return found


class Traced(Stepping):
    """With a function that is traced for each number of rows: in an eager step, ranks do so in different steps."""

    @tf.function
    def taken(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = ops.mean((self(x, training=True) - y) ** 2)
        return tape.gradient(loss, self.trainable_variables)

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.abs(self(x, training=True) - y))
        both = zip(clipped(self.taken(x, y)), tape.gradient(loss, self.trainable_variables), strict=True)
        self.update([g + h for g, h in both], self.trainable_variables)
        return {"loss": loss}


@case
def functions_that_ranks_trace_in_different_steps(wrap: Wrap) -> Any:
    sizes = ((7, 3), (11, 4), (13, 5))
    return [stepped(wrap, Traced, samples=n, batch=b, run_eagerly=True) for n, b in sizes]


class Seen(keras.layers.Layer):
    """Updates a metric in a function, which training and evaluation share."""

    def __init__(self, metric: Any) -> None:
        super().__init__()
        self.metric = metric

    @tf.function(reduce_retracing=True)
    def note(self, x: Any) -> Any:
        self.metric.update_state(tf.reduce_mean(x))
        return x * 1.0

    def call(self, x: Any) -> Any:
        return self.note(x)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


@case
def functions_in_training_and_evaluation(wrap: Wrap) -> Any:
    found = []
    for kind in (Stepping, keras.Model):
        for eager in (False, True):
            metric = keras.metrics.Mean(name="seen")
            inputs = keras.Input((FEATURES,))
            model = wrap(kind(inputs, keras.layers.Dense(1)(Seen(metric)(inputs))))
            model.compile("sgd", "mse", run_eagerly=eager)
            if kind is keras.Model:
                found.append(model.evaluate(X[:9], Y[:9], batch_size=6, verbose=0))
            validation = {"validation_data": (X[:7], Y[:7]), "validation_batch_size": 6}
            found.append(model.fit(X[:13], Y[:13], batch_size=5, shuffle=False, verbose=0, **validation).history)
    return found


@case
def a_function_with_and_without_a_tape_around_it(wrap: Wrap) -> Any:
    class Twofold(Traced):
        def train_step(self, batch: Any) -> Any:
            norm = tf.linalg.global_norm(self.taken(*batch))
            with tf.GradientTape() as tape:
                loss = self.loss_of(*batch) + 0.1 * tf.linalg.global_norm(self.taken(*batch))
            self.update(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"norm": norm}

    return [stepped(wrap, Twofold, run_eagerly=eager) for eager in (False, True)]


@case
def a_step_that_is_a_function(wrap: Wrap) -> Any:
    class Function(Stepping):
        train_step = tf.function(Stepping.train_step)

        def loss_of(self, x: Any, y: Any) -> Any:
            return ops.mean((self(x, training=True) - y) ** 2)

        def between(self, gradients: Gradients, variables: Any) -> Gradients:
            return clipped(gradients)

    return stepped(wrap, Function)


@case
def gradients_by_hand(wrap: Wrap) -> Any:
    class Symbolic(Stepping):
        def train_step(self, batch: Any) -> Any:
            variables = self.trainable_variables
            loss = self.loss_of(*batch)
            self.update(tf.gradients(loss, [v.value for v in variables]), variables)
            return {"loss": loss}

    return stepped(wrap, Symbolic)


def clipped_by_row(jacobian: Any) -> Any:
    flat = tf.reshape(jacobian, [tf.shape(jacobian)[0], -1])
    flat /= tf.maximum(tf.norm(flat, axis=1, keepdims=True), 1.0)
    return tf.reshape(tf.reduce_mean(flat, 0), jacobian.shape[1:])


@case
def each_row_clipped_in_a_jacobian(wrap: Wrap) -> Any:
    class Private(Stepping):
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            variables = self.trainable_variables
            with tf.GradientTape() as tape:
                rows = ops.sum((self(x, training=True) - y) ** 2, -1)
            self.update([clipped_by_row(j) for j in tape.jacobian(rows, [v.value for v in variables])], variables)
            return {"loss": ops.mean(rows)}

    return stepped(wrap, Private)


@case
def each_row_clipped_in_a_loop(wrap: Wrap) -> Any:
    tarantella = sys.modules.get("tarantella")
    local = contextlib.nullcontext if tarantella is None else tarantella.local_gradients

    class Private(Stepping):
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            variables = self.trainable_variables

            def of_row(row: Any) -> Any:
                with tf.GradientTape() as tape:
                    loss = ops.sum((self(row[0][None], training=True) - row[1][None]) ** 2)
                return clipped(tape.gradient(loss, variables))

            with local():
                rows = tf.map_fn(of_row, (x, y), fn_output_signature=[tf.float64] * len(variables))
            self.update([tf.reduce_mean(each, 0) for each in rows], variables)
            return {"size": ops.mean(y)}

    return stepped(wrap, Private)


@case
def variables_and_inputs_in_one_call(wrap: Wrap) -> Any:
    class Mixed(Stepping):
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            variables = self.trainable_variables
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = self.loss_of(x, y)
            by_variables, by_inputs = tape.gradient(loss, (variables, x))
            with tf.GradientTape() as tape:
                again = self.loss_of(x + 0.1 * tf.sign(by_inputs), y)
            both = zip(by_variables, tape.gradient(again, variables), strict=True)
            self.update([g + h for g, h in both], variables)
            return {"loss": loss}

    return stepped(wrap, Mixed)


@case
def adversarial_inputs(wrap: Wrap) -> Any:
    class Virtual(Stepping):  # VAT: the gradient of the inputs, normalized by row
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = self.loss_of(x, y)
            towards = tf.math.l2_normalize(tape.gradient(loss, x), -1)
            with tf.GradientTape() as tape:
                loss = self.loss_of(x, y) + self.loss_of(x + 0.1 * towards, y)
            self.update(clipped(tape.gradient(loss, self.trainable_variables)), self.trainable_variables)
            return {"loss": loss}

    return stepped(wrap, Virtual)


@case
def noise_on_gradients(wrap: Wrap) -> Any:
    def noisy(gradients: Gradients) -> Gradients:
        return [g + tf.random.normal(g.shape, stddev=0.01, dtype=g.dtype) for g in gradients]

    class Noisy(Stepping):
        def between(self, gradients: Gradients, variables: Any) -> Gradients:
            noise = keras.random.normal(gradients[0].shape, stddev=0.01, dtype="float64", seed=self.generator)
            return [gradients[0] + noise, *gradients[1:]]

    model = net(Noisy)
    model.generator = keras.random.SeedGenerator(3)
    return [stepped(wrap, between(noisy)), stepped(wrap, model)]


class Rematerialized(keras.layers.Layer):
    """Computes its inner layer anew in the backward pass."""

    def __init__(self, again: Callable[[Any], Any]) -> None:
        super().__init__()
        self.inner, self.again = keras.layers.Dense(4, activation="tanh"), again

    def build(self, shape: Any) -> None:
        self.inner.build(shape)

    def call(self, x: Any) -> Any:
        return self.again(lambda inputs: self.inner(inputs))(x)


@case
def layers_computed_anew(wrap: Wrap) -> Any:
    found = []
    for again in (tf.recompute_grad, getattr(keras, "remat", tf.recompute_grad)):
        inputs = keras.Input((FEATURES,))
        out = keras.layers.Dense(1)(Rematerialized(again)(inputs))
        found.append(stepped(wrap, between(clipped)(inputs, out), batch=15))
    return found


@case
def variable_that_keras_does_not_know(wrap: Wrap) -> Any:
    class Tempered(Stepping):
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            with tf.GradientTape() as tape:
                loss = ops.mean((self.scale * self(x, training=True) - y) ** 2)
            gradients, by_scale = tape.gradient(loss, (self.trainable_variables, self.scale))
            self.update(gradients, self.trainable_variables)
            self.scale.assign_sub(0.05 * by_scale)
            return {"loss": loss}

    model = net(Tempered)
    model.scale = tf.Variable(1.0, dtype="float64")
    return [stepped(wrap, model), model.scale.numpy()]


class AlongRows(Stepping):
    """A vector of losses, which TensorFlow sums."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            losses = self.losses_of(self(x, training=True), y)
        found = tape.gradient(losses, self.trainable_variables, output_gradients=self.seed_of(losses))
        self.update(clipped(found), self.trainable_variables)
        return {"loss": ops.mean(losses)}

    def losses_of(self, out: Any, y: Any) -> Any:
        return ops.mean((out - y) ** 2, axis=-1)

    def seed_of(self, losses: Any) -> Any:
        return None


class Averaged(AlongRows):
    """Whose sum is a mean."""

    def losses_of(self, out: Any, y: Any) -> Any:
        return super().losses_of(out, y) / tf.cast(tf.shape(y)[0], out.dtype)


def averaged(scale: Callable[[Any, Any], Any]) -> type:
    return type("AveragedBy", (AlongRows,), {"losses_of": lambda self, out, y: scale((out - y)[:, 0] ** 2, y)})


AVERAGED = [
    lambda losses, y: losses / tf.maximum(tf.cast(tf.shape(y)[0], losses.dtype), 1.0),
    lambda losses, y: losses * (tf.ones_like(losses) / tf.reduce_sum(tf.ones_like(losses))),
    lambda losses, y: losses * tf.stop_gradient(tf.ones_like(losses) / tf.cast(tf.size(y), losses.dtype)),
    lambda losses, y: tf.cond(
        y[0, 0] ** 2 >= 0,
        lambda: losses / tf.cast(tf.shape(y)[0], losses.dtype),
        lambda: 2 * losses / tf.cast(tf.shape(y)[0], losses.dtype),
    ),
]


class AveragedByItsSeed(AlongRows):
    def seed_of(self, losses: Any) -> Any:
        return tf.ones_like(losses) / tf.cast(tf.size(losses), losses.dtype)


class Tasks(AlongRows):
    def losses_of(self, out: Any, y: Any) -> Any:
        return tf.stack([ops.mean((out - y) ** 2), ops.mean(ops.abs(out)), ops.mean(out**2)])


class TasksAtOnce(AlongRows):
    def losses_of(self, out: Any, y: Any) -> Any:
        return ops.mean(tf.stack([ops.square(out - y), ops.abs(out), out**2], -1)[:, 0], axis=0)


@case
def vectors_of_losses(wrap: Wrap) -> Any:
    unreduced = keras.losses.MeanSquaredError(reduction="none")
    return [
        stepped(wrap, AlongRows, keras.optimizers.SGD(0.01)),
        stepped(wrap, Averaged),
        stepped(wrap, AveragedByItsSeed),
        *(stepped(wrap, averaged(each)) for each in AVERAGED),
        stepped(wrap, Tasks, keras.optimizers.SGD(0.01), samples=36, batch=6),  # three rows a rank, three tasks
        stepped(wrap, TasksAtOnce, keras.optimizers.SGD(0.01), samples=36, batch=6),
        stepped(wrap, net(keras.Model), keras.optimizers.SGD(0.01), loss=unreduced),
        stepped(wrap, AlongRows, keras.optimizers.SGD(0.01), run_eagerly=True),
    ]


class RowsAndMean(Stepping):
    """Targets with a value for each row, and with one."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            targets = [ops.mean((out - y) ** 2, axis=-1), ops.mean(ops.abs(out))]
        self.update(clipped(tape.gradient(targets, self.trainable_variables)), self.trainable_variables)
        return {"loss": targets[1]}


@case
def targets_of_rows_beside_means(wrap: Wrap) -> Any:
    return [stepped(wrap, RowsAndMean), stepped(wrap, RowsAndMean, run_eagerly=True)]


@case
def a_step_that_sums(wrap: Wrap) -> Any:
    class Summing(Stepping):
        tnt_reduction = "sum"

        def loss_of(self, x: Any, y: Any) -> Any:
            return ops.sum((self(x, training=True) - y) ** 2)

        def between(self, gradients: Gradients, variables: Any) -> Gradients:
            return clipped(gradients)

        def train_step(self, batch: Any) -> Any:
            return {"rows": super().train_step(batch)["loss"] * 0}

    return stepped(wrap, Summing)


class SummedInAFunction(TwiceSummed):
    """Whose function is traced once, whatever calls it later."""

    def train_step(self, batch: Any) -> Any:
        self.update(self.taken(*batch)[1], self.trainable_variables)
        return {"zero": 0.0}

    def test_step(self, batch: Any) -> Any:
        self.metrics[0].update_state(tf.linalg.global_norm(self.taken(*batch)[1]))
        return {"norm": self.metrics[0].result()}


class SummedTheStepBefore(SummedInAFunction):
    """Applies what the step before has taken."""

    def train_step(self, batch: Any) -> Any:
        self.update([each * 1.0 for each in self.last], self.trainable_variables)
        for last, gradient in zip(self.last, self.taken(*batch)[1], strict=True):
            last.assign(gradient)
        return {"zero": 0.0}


@case
def sums_of_functions_that_were_traced_before(wrap: Wrap) -> Any:
    found = []
    for eager in (False, True):
        model = wrap(net(SummedInAFunction))
        if not eager:
            model.compile("sgd")
            model.evaluate(X[:8], Y[:8], batch_size=8, verbose=0)  # of one batch: a mean of norms is not a norm
        for _ in range(2):
            model.compile(keras.optimizers.SGD(0.01), run_eagerly=eager)
            model.fit(X, Y, batch_size=16, shuffle=False, verbose=0)
        found.append(model.get_weights())
        model = net(SummedTheStepBefore)
        model.last = [tf.Variable(tf.zeros_like(v.value), trainable=False) for v in model.trainable_variables]
        model.compile(keras.optimizers.SGD(0.01), run_eagerly=eager)
        model = wrap(model)
        model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    return found


class Adversaries(keras.Model):
    """A GAN whose critic scales its loss, as loss scaling wants it, and whose generator does not."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
        self.generator = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(FEATURES)])
        self.opponent = keras.optimizers.Adam(0.01)

    def call(self, x: Any) -> Any:
        return self.critic(x)

    def train_step(self, batch: Any) -> Any:
        x = batch
        judge = keras.losses.BinaryCrossentropy(from_logits=True)
        with tf.GradientTape() as of_critic, tf.GradientTape() as of_generator:
            real, fake = self.critic(x), self.critic(self.generator(x[:, ::-1]))
            lost = judge(ops.ones_like(real), real) + judge(ops.zeros_like(fake), fake)
            scaled = self.optimizer.scale_loss(lost)
            fooled = judge(ops.ones_like(fake), fake)
        critic, generator = self.critic.trainable_variables, self.generator.trainable_variables
        self.optimizer.apply_gradients(zip(of_critic.gradient(scaled, critic), critic, strict=True))
        self.opponent.apply_gradients(zip(clipped(of_generator.gradient(fooled, generator)), generator, strict=True))
        return {"lost": lost, "fooled": fooled}


@case
def adversaries_one_of_which_scales_its_loss(wrap: Wrap) -> Any:
    model = wrap(Adversaries())
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=16.0))
    history = model.fit(X, batch_size=16, epochs=2, shuffle=False, verbose=0)
    return [model.get_weights(), dict(history.history)]


class Normed(keras.Model):
    """With tapes in its loss, and Keras's step."""

    tnt_reduction = "mean"

    @tf.function(reduce_retracing=True)
    def norm(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = ops.mean((self(x) - y) ** 2)
        return tf.linalg.global_norm(tape.gradient(loss, self.trainable_variables))

    def norms(self, x: Any, y: Any) -> Any:
        return self.norm(x, y) + self.norm(2 * x, y)

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **options: Any) -> Any:
        return ops.mean((y_pred - y) ** 2) / (1 + tf.stop_gradient(self.norms(x, y)))


class NormedInTurns(Normed):
    def norms(self, x: Any, y: Any) -> Any:
        def turn(i: Any, total: Any) -> Any:
            return i + 1, total + self.norm(x * tf.cast(i, x.dtype), y)

        return tf.while_loop(lambda i, _: i < 3, turn, (0, tf.zeros((), "float64")))[1]


@case
def tapes_in_compute_loss(wrap: Wrap) -> Any:
    return [
        stepped(wrap, Normed),
        stepped(wrap, Normed, run_eagerly=True),
        stepped(wrap, NormedInTurns, steps_per_execution=2),
    ]


@case
def watched_by_hand(wrap: Wrap) -> Any:
    class Cooled(Stepping):
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            frozen = self.layers[1].kernel
            with tf.GradientTape() as tape:
                tape.watch([self.heat, frozen.value])
                loss = ops.mean((self.heat * self(x, training=True) - y) ** 2)
            by_heat, by_frozen, *rest = tape.gradient(loss, [self.heat, frozen, *self.trainable_variables])
            self.heat.assign_sub(0.01 * by_heat / (1 + tf.abs(by_heat)))
            frozen.assign_sub(0.01 * by_frozen / (1 + tf.norm(by_frozen)))
            self.update(clipped(rest), self.trainable_variables)
            return {"loss": loss}

    model = net(Cooled)
    model.heat = tf.Variable(1.0, dtype="float64", trainable=False)
    model.layers[1].trainable = False
    return [stepped(wrap, model), model.heat.numpy()]


@case
def rows_inside_of_losses(wrap: Wrap) -> Any:
    """Each row in turn, and a coefficient that all rows hold."""

    class InTurn(Stepping):
        def loss_of(self, x: Any, y: Any) -> Any:
            losses = (self(x, training=True) - y) ** 2
            return ops.mean(tf.map_fn(lambda i: losses[i, 0], tf.range(tf.shape(x)[0]), fn_output_signature="float64"))

    class Decayed(Stepping):
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            with tf.GradientTape(persistent=True) as tape:
                loss = ops.mean((self(x[:, 1:], training=True) - y) ** 2)
                decay = x[0, 0] * tf.add_n([tf.reduce_sum(v**2) for v in self.trainable_variables])
            both = [tape.gradient(each, self.trainable_variables) for each in (loss, decay)]
            self.update([a + b for a, b in zip(*both, strict=True)], self.trainable_variables)
            return {"loss": loss}

    def picked(pick: Callable[[Any], Any]) -> type:
        return type("Picked", (Stepping,), {"loss_of": lambda self, x, y: ops.mean(pick(self(x, training=True)) ** 2)})

    picks = [
        lambda out: ops.take(out, 0, axis=1),
        lambda out: tf.gather(out, tf.zeros_like(out[:, 0], tf.int32), batch_dims=1),
        lambda out: out[-1::-1],
    ]
    model = wrap(net(Decayed))
    model.compile(keras.optimizers.SGD(0.05))
    x = np.concatenate([np.full((SAMPLES, 1), 0.01), X], 1)
    history = model.fit(x, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    return [stepped(wrap, InTurn), *(stepped(wrap, picked(each)) for each in picks), trained(model, history)]


@case
def sparse_gradients_clipped(wrap: Wrap) -> Any:
    ids = np.random.default_rng(1).integers(0, 12, (SAMPLES, 3))
    found = []
    for samples, batch in ((SAMPLES, 16), (7, 3)):
        inputs = keras.Input((3,), dtype="int32")
        out = keras.layers.Dense(1)(keras.layers.Flatten()(keras.layers.Embedding(12, 4)(inputs)))
        model = wrap(between(clipped)(inputs, out))
        model.compile(keras.optimizers.Adam(0.01), "mse")
        history = model.fit(ids[:samples], Y[:samples], batch_size=batch, epochs=2, shuffle=False, verbose=0)
        found.append(trained(model, history))
    return found


@case
def reduced_by_hand(wrap: Wrap) -> Any:
    tarantella = sys.modules.get("tarantella")

    class Reduced(Stepping):
        def train_step(self, batch: Any) -> Any:
            variables = self.trainable_variables
            loss = self.loss_of(*batch)
            found = tf.gradients(loss, [v.value for v in variables])
            if tarantella is not None:
                found = tarantella.reduce_gradients(found, variables)
            self.update(clipped(found), variables)
            return {"loss": loss}

    return stepped(wrap, Reduced)
