"""Ranks that run out of data at different times, against NumPy. At the end rank 1 dies, when the others have joined."""

import gc
import os
import tempfile
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tarantella.horovod.keras as hvd
import tarantella.horovod.tensorflow as hvt
from tarantella import PeerLostError
from tarantella.horovod import join, join_calls

hvd.init()
R, N = hvd.rank(), hvd.size()


def same(got, expected, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(got, "float64"), np.asarray(expected, "float64"), tolerance, tolerance)


def raises(words, call, *args, **options):
    said, kind = "nothing", None
    try:
        call(*args, **options)
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        said, kind = str(error), type(error)
    assert words in said, (words, said)
    return kind


def joined(last, variables=()):
    """Joins; all ranks have what the last of them has."""
    came = hvd.join()
    assert came in last, (came, last)
    assert set(hvd.allgather_object(came)) == {came}
    hvd.broadcast_variables(list(variables), root_rank=came)


def gradient(rank, step):
    return np.arange(3.0) + 10 * rank + step


def of_all(steps, step):
    """The average, in which ranks after their last step have zeros."""
    return sum((gradient(r, step) for r in range(N) if step < steps[r]), np.zeros(3)) / N


def refusals():
    raises("outside, after the loop", tf.function(lambda: hvd.join()))
    with join._one:
        raises("another thread of this rank", hvd.join)


def graphs_over_machines():
    """A group over several machines is refused on all ranks: those that have joined leave that to the others."""

    def refuse():
        raise ValueError("all ranks of a group must be on one machine")

    hvd.global_process_set.make_graph_group = refuse
    if R == 0:
        raises("on one machine", tf.function(lambda: hvd.allreduce(tf.ones(2))))
    joined([0])
    del hvd.global_process_set.make_graph_group


def errors():
    """One in an announcement names the call, and keeps its class."""

    class Lost:
        def allgather(self, *_):
            raise PeerLostError("rank 1 ended")

    context = join_calls.AnnouncedContext(Lost(), (0, 1))
    made = "(before hvd's allreduce of the max, loss)"
    assert raises(made, context.allreduce, np.ones(1), "loss", "max") is PeerLostError
    raises("before hvd's barrier)", context.barrier)


def user_defined_loops():
    """An optimizer in a graph, a tape eagerly: one rank has no batch at all, another one each time."""
    weight, other = keras.Variable(np.zeros(3)), tf.Variable(np.zeros(3), dtype=tf.float32)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))
    step_of = tf.function(lambda value: optimizer.apply([value], [weight]))
    expected, numbers = np.zeros(3), np.zeros(3)
    for epoch in range(N + 1):
        steps = [2 * ((r + epoch) % N) for r in range(N)]
        for step in range(steps[R]):
            value = tf.constant(gradient(R, step), tf.float32)
            step_of(value)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(other * value)
            other.assign_sub(hvd.DistributedGradientTape(tape).gradient(loss, other))
            if step % 2:
                same(hvd.allreduce(value), of_all(steps, step))
        for step in range(max(steps)):
            expected -= 0.5 * of_all(steps, step)
            numbers -= of_all(steps, step)
        joined([int(np.argmax(steps))], [weight, other])
        same(weight, expected)
        same(other, numbers)


def keras_fit():
    """Ranks with other numbers of steps, one of which has metrics averaged in a further epoch, and shared moments."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((3,)), hvd.SyncBatchNormalization(momentum=0.5, epsilon=0.0), keras.layers.Dense(1)]
    )
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse", metrics=["mae"])
    x = np.array([[-1.0, 0, 2], [1, 2, 4]])
    data = tf.data.Dataset.from_tensors((x, np.ones((2, 1)))).repeat()
    steps = [r + 1 for r in range(N)]
    own = []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: own.append(logs["mae"]))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), note, hvd.callbacks.MetricAverageCallback()]
    first = model.fit(data, steps_per_epoch=1, verbose=0, callbacks=callbacks).history["mae"]
    same(first, own)  # of all ranks, which have the same rows
    if steps[R] > 1:
        model.fit(data, steps_per_epoch=steps[R] - 1, verbose=0)
    mean, variance = x.mean(0), x.var(0)
    moving = [np.zeros(3), np.ones(3)]
    for step in range(N + 2):
        # Zeros in the place of the moments of a rank that has joined.
        share = sum(step < each for each in steps) / N if step < N else 1 / N
        now = [share * mean, share * (variance + mean**2) - (share * mean) ** 2]
        moving = [0.5 * old + 0.5 * new for old, new in zip(moving, now, strict=True)]
    if R == N - 1:
        again = model.fit(data, epochs=2, steps_per_epoch=1, verbose=0, callbacks=callbacks[1:]).history["mae"]
        same(again, np.divide(own[1:], N))
    joined([N - 1], model.variables)
    normalization = model.layers[0]
    same(normalization.moving_mean, moving[0])
    same(normalization.moving_variance, moving[1])


def keras_fit_with_join():
    """Ranks with other numbers of steps in each epoch, whose metrics are averaged when all have joined."""

    class Join(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            variables = [*self.model.variables, *self.model.optimizer.variables]
            hvd.broadcast_variables(variables, root_rank=hvd.join())

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse", metrics=["mae"])
    data = tf.data.Dataset.from_tensors((np.full((2, 2), R + 1.0), np.ones((2, 1)))).repeat()
    own = []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: own.append(logs["mae"]))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Join(), note, hvd.callbacks.MetricAverageCallback()]
    history = model.fit(data, epochs=2, steps_per_epoch=R + 1, verbose=0, callbacks=callbacks).history
    same(history["mae"], np.mean(hvd.allgather_object(own), axis=0))
    for weights in hvd.allgather_object([np.asarray(v) for v in [*model.variables, *model.optimizer.variables]]):
        for mine, other in zip([*model.variables, *model.optimizer.variables], weights, strict=True):
            same(mine, other)
    assert int(model.optimizer.iterations) == 2 * N


def sparse_gradients():
    table = keras.Variable(np.zeros((4, 2)))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))

    @tf.function
    def step(values):
        optimizer.apply([tf.IndexedSlices(values, tf.constant([R % 4]), tf.constant([4, 2]))], [table])

    expected = np.zeros((4, 2))
    for _ in range(N - R):
        step(tf.ones((1, 2)))
    for r in range(N):
        expected[r % 4] -= (N - r) / N
    joined([0], [table])
    same(table, expected)


def sparse_gradients_of_equal_rows():
    """Rows that one process has once are summed before Adam squares them. The last rank has no batch."""
    table, alone = (keras.Variable(np.zeros((4, 2))) for _ in range(2))
    optimizer, plain = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), keras.optimizers.Adam(0.1)
    optimizer.build([table])
    step = tf.function(
        lambda values: optimizer.apply([tf.IndexedSlices(values, tf.constant([1, 3]), tf.constant([4, 2]))], [table])
    )
    for k in range(2):
        if R < N - 1:
            step(tf.fill((2, 2), R + k + 1.0))
        mean = sum(r + k + 1 for r in range(N - 1)) / N
        plain.apply([tf.constant([[0.0, 0], [mean, mean]] * 2)], [alone])
    joined(range(N - 1), [table, *optimizer.variables])
    same(table, alone)


def models_with_equal_names():
    """One that a rank knows from a join only cannot be told from a new one, until all ranks have trained it."""

    def made():
        weight = keras.Variable(np.zeros(2), name="fold")
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        return lambda: optimizer.apply([tf.ones(2)], [weight])

    first = made()
    if R == 0:
        first()
    joined([0])
    if R == 0:
        raises("looks like that of an older model", made())
    first()
    raises("looks like that of an older model", made())
    joined(range(N))
    made()()


def lost_models():
    """A rank that has no longer what others may train says so, and what to do."""
    weight = keras.Variable(np.zeros(2))
    hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)).apply([tf.ones(2)], [weight])
    gc.collect()
    with tempfile.TemporaryDirectory() as own:
        said = Path(hvd.broadcast_object(own, N - 1)) / "said"
        if R == N - 1:
            join._PATIENCE, warn_once = 0.05, join.log.warn_once
            join.log.warn_once = said.write_text
        deadline = time.monotonic() + 30
        while R < N - 1 and not said.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        joined(range(N))
        if R == N - 1:
            join.log.warn_once = warn_once
            assert "keep the model until hvd.join returns" in said.read_text()


def calls():
    """Of one rank, while the others have joined."""
    graph = tf.function(lambda value: hvd.allreduce(value, op=hvd.Sum))
    parts = hvd.add_process_set([0, N - 1]) if N > 2 else hvd.global_process_set
    if R == N - 1:
        time.sleep(0.1)
        same(hvd.allreduce(np.arange(3.0)), np.arange(3.0) / N)
        same(hvd.allreduce(np.int32(7 * N)), 7)
        same(hvt.allreduce(tf.ones(2), op=hvd.Sum, prescale_factor=3.0, compression=hvd.Compression.bf16), [3, 3])
        one, two = hvd.grouped_allreduce([1.0, tf.ones((2, 0))], op=hvd.Sum)
        same(one, 1)
        assert two.shape == (2, 0)
        for _ in range(2):
            same(graph(tf.ones(2)), [1, 1])
        same(hvd.allreduce(np.ones(2), process_set=parts), np.ones(2) / 2)
        rows = tf.Variable(np.ones((2, 3)))
        with tf.GradientTape() as tape:
            every = hvd.allgather(rows)
        same(every, np.ones((2, 3)))
        same(tape.gradient(every, rows), np.ones((2, 3)) / N)
        assert hvd.allgather_object("x") == ["x"]
        hvd.barrier()
        who = "rank 0 has joined" if N == 2 else "ranks 0, 1"
        for name, call in {
            "no broadcast is": lambda: hvd.broadcast(1.0, 0),
            "no broadcast is ": lambda: hvd.broadcast_object(1),
            "no reducescatter": lambda: hvd.reducescatter(np.ones(N)),
            "no reducescatter ": lambda: hvd.reducescatter(np.ones(N), op=hvd.Product),
            "no alltoall": lambda: hvd.alltoall(np.ones(N)),
            "no alltoall ": lambda: hvd.alltoall(np.ones(N), splits=[1] * N),
            "no allreduce of the min": lambda: hvd.allreduce(1.0, op=hvd.Min),
            "no allreduce of the max": lambda: hvd.allreduce(1.0, op=hvd.Max),
            "no allreduce of the product": lambda: hvd.allreduce(1.0, op=hvd.Product),
            "no broadcast of variables": lambda: hvd.broadcast_variables([rows], 0),
            "no add_process_set": lambda: hvd.add_process_set([0]),
            "no broadcast": tf.function(lambda: hvd.broadcast(1.0, 0)),
        }.items():
            raises(name.strip(), call)
            raises(who, call)
    joined([N - 1])
    same(graph(tf.ones(2)), [N, N])
    same(hvd.broadcast(R, 0), 0)


def ties():
    joined(range(N))
    joined(range(N))
    time.time_ns = lambda: int(R == 1)
    joined([1])


for part in (
    refusals,
    graphs_over_machines,
    errors,
    user_defined_loops,
    keras_fit,
    keras_fit_with_join,
    sparse_gradients,
    sparse_gradients_of_equal_rows,
    models_with_equal_names,
    lost_models,
    calls,
    ties,
):
    part()
print("all right", flush=True)
hvd.barrier()
if R == 1:
    time.sleep(0.3)
    os._exit(7)
hvd.join()
print("joined with the dead", flush=True)
