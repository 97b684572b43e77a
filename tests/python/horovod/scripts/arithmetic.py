"""Every collective and callback against the formulas that Horovod documents, on any number of ranks."""

import keras
import numpy as np
import tensorflow as tf

import tarantella
import tarantella.horovod.keras as hvd
import tarantella.horovod.tensorflow as hvt

OPS = (hvt.rank_op, hvt.size_op, hvt.local_rank_op, hvt.local_size_op, hvt.process_set_included_op)
traced = tf.function(lambda: [op() for op in OPS]).get_concrete_function()  # and read after init
assert hvt.process_set_included_op().numpy() == -1
hvd.init()
hvd.init()
R, N = hvd.rank(), hvd.size()
OF = [np.arange(6.0).reshape(2, 3) + 10 * r + 1 for r in range(N)]  # what each rank has
MINE, ALL = OF[R], np.stack(OF)
TYPES = (np.float64, np.float32, np.float16, np.int32, np.int64, np.uint8)


def same(got, expected, tolerance=0.0):
    got = got.numpy() if hasattr(got, "numpy") else np.asarray(got)
    expected = np.asarray(expected)
    assert got.shape == expected.shape, (got, expected)
    np.testing.assert_allclose(got.astype("float64"), expected.astype("float64"), tolerance, tolerance)


class Half(hvd.Compression.fp16):
    """A user-defined compressor."""


def places():
    assert hvd.is_initialized() and hvt.size() == N and hvd.local_size() == N and hvd.local_rank() == R
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
    for got in (traced(), [op(name="x") for op in OPS]):
        assert [(each.numpy(), each.dtype, each.shape) for each in got] == [
            (value, tf.int32, ()) for value in (R, N, R, N, 1)
        ]
    questions = [hvd.mpi_built, hvd.mpi_enabled, hvd.gloo_built, hvd.gloo_enabled, hvd.nccl_built, hvd.ddl_built]
    questions += [hvd.ccl_built, hvd.cuda_built, hvd.rocm_built, hvd.mpi_threads_supported]
    assert not any(question() for question in questions)


def reductions():
    for kind in TYPES:
        mine, every = MINE.astype(kind), ALL.astype(kind)
        for op, expected in (
            (hvd.Sum, every.sum(0, dtype=kind)),
            (hvd.Min, every.min(0)),
            (hvd.Max, every.max(0)),
            (hvd.Average, every.mean(0).astype(kind)),
        ):
            got = hvd.allreduce(mine, op=op)
            assert got.dtype == kind
            same(got, expected, 1e-3 if kind is np.float16 else 1e-7)
            if kind in (np.float32, np.int32):
                same(tf.function(lambda x, op=op: hvd.allreduce(x, op=op))(mine), got)
    same(hvd.allreduce(MINE, op=hvd.Product), ALL.prod(0), 1e-12)
    same(hvd.allreduce(MINE), ALL.mean(0), 1e-15)
    same(hvd.allreduce(R + 1), (N + 1) // 2)
    same(hvd.allreduce(np.full(2, 200, np.uint8)), [200, 200])  # whose sum is no uint8
    same(hvd.reducescatter(np.full(N, 200, np.uint8)), [200])
    same(
        hvt.allreduce(MINE, None, "/cpu:0", op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
        1.5 * ALL.sum(0),
        1e-12,
    )
    same(hvd.allreduce(MINE, None, False), ALL.sum(0))
    for compression, error in (
        (hvd.Compression.none, 1e-7),
        (hvd.Compression.fp16, 1e-3),
        (hvd.Compression.bf16, 1e-2),
        (Half, 1e-3),
    ):
        got = hvd.allreduce(tf.constant(MINE / 7, tf.float32), op=hvd.Sum, compression=compression)
        assert got.dtype == tf.float32
        same(got, ALL.sum(0) / 7, error)
        same(hvd.allreduce(R, op=hvd.Sum, compression=compression), N * (N - 1) // 2)
    one, two = hvd.grouped_allreduce([MINE, 2 * MINE], op=hvd.Max)
    same(one, ALL.max(0))
    same(two, 2 * ALL.max(0))
    (first,) = hvt.grouped_allreduce([R], None, "", "", hvd.Compression.none, hvd.Sum, 2.0, 1.0, hvd.global_process_set)
    same(first, N * (N - 1))
    slices = hvt.allreduce(tf.IndexedSlices(tf.constant(MINE), tf.constant([R, 0]), tf.constant([N, 3])))
    dense = np.zeros((N, 3))
    for r in range(N):
        dense[r] += OF[r][0] / N
        dense[0] += OF[r][1] / N
    same(tf.convert_to_tensor(slices), dense, 1e-12)


def rows():
    ragged = [np.full((r + 1, 2), r) for r in range(N)]
    same(hvd.allgather(ragged[R]), np.concatenate(ragged))
    same(tf.function(hvd.allgather)(tf.constant(ragged[R])), np.concatenate(ragged))
    same(hvd.allgather(R * 1.5), np.arange(N) * 1.5)
    for root in range(N):
        same(hvd.broadcast(MINE, root), OF[root])
        same(hvd.broadcast(MINE, root_rank=root, name="x"), OF[root])
    tall = np.arange(2.0 * (2 * N + 1)).reshape(-1, 2) * (R + 1)  # the first rank gets a row more
    ends = np.cumsum([0] + [2 + (r < 1) for r in range(N)])
    whole = np.arange(2.0 * (2 * N + 1)).reshape(-1, 2)
    here = slice(ends[R], ends[R + 1])
    same(hvd.reducescatter(tall), whole[here] * (N + 1) / 2, 1e-15)
    same(hvd.reducescatter(tall, op=hvd.Sum), whole[here] * N * (N + 1) / 2, 1e-15)
    same(hvd.reducescatter(tall, op=hvd.Max), whole[here] * N)
    product = tf.function(lambda x: hvd.reducescatter(x, op=hvd.Product))(tall)
    same(product, np.prod([whole[here] * (r + 1) for r in range(N)], 0), 1e-12)
    pairs = [np.array([2 * R, 2 * R + 1]) + 100 * r for r in range(N)]
    same(hvd.alltoall(np.arange(2 * N) + 100 * R), np.concatenate(pairs))
    sent = np.concatenate([np.full((to + R, 1), 10 * R + to) for to in range(N)])
    got, counts = hvd.alltoall(sent, splits=[to + R for to in range(N)])
    same(counts, [R + r for r in range(N)])
    same(got, np.concatenate([np.full((R + r, 1), 10 * r + R) for r in range(N)]))


def gradients():
    """Of collectives, as Horovod registers them."""
    x = tf.Variable(MINE)
    with tf.GradientTape(persistent=True) as tape:
        weight = tf.constant(R + 1.0, tf.float64)
        loss = {
            "sum": tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) * weight),
            "average": tf.reduce_sum(hvd.allreduce(x) * weight),
            "rows": tf.reduce_sum(hvd.allgather(x) * weight),
            "root": tf.reduce_sum(hvd.broadcast(x, 0) * weight),
            "part": tf.reduce_sum(hvd.reducescatter(tf.tile(x, [N, 1]), op=hvd.Sum) * weight),
            "exchange": tf.reduce_sum(hvd.alltoall(tf.tile(x, [N, 1])) * weight),
        }
    total, mean = N * (N + 1) / 2, (N + 1) / 2
    same(tape.gradient(loss["sum"], x), np.full((2, 3), total))
    same(tape.gradient(loss["average"], x), np.full((2, 3), mean))
    same(tape.gradient(loss["rows"], x), np.full((2, 3), mean))
    same(tape.gradient(loss["root"], x), np.full((2, 3), mean * (R == 0)))
    same(tape.gradient(loss["part"], x), np.full((2, 3), total * N))
    same(tape.gradient(loss["exchange"], x), np.full((2, 3), total))

    own, shared = tf.Variable(2.0), tf.Variable(R + 1.0)
    with tf.GradientTape() as tape:
        product = own * shared
    tape = hvt.DistributedGradientTape(tape)
    tape.register_local_source(own)
    [(local, half)], [(other, all_of)] = tape.get_local_and_global_gradients(product, [own, shared])
    assert local is own and other is shared
    same(half, (R + 1) / N, 1e-7)
    same(all_of, 2)


def objects():
    mine = {"rank": R, "text": "x" * R, "none": None}
    assert hvd.broadcast_object(mine, root_rank=N - 1) == {"rank": N - 1, "text": "x" * (N - 1), "none": None}
    assert [each["rank"] for each in hvd.allgather_object(mine)] == list(range(N))
    variables = [tf.Variable(MINE), keras.Variable(MINE.astype("float32"))]
    hvd.broadcast_variables(variables, root_rank=N - 1)
    for variable in variables:
        same(variable, OF[N - 1])
    variables += [tf.Variable(R, dtype=tf.int64), keras.random.SeedGenerator(R).state]
    variables[0].assign(MINE)
    tf.function(lambda: hvt.broadcast_variables(variables, root_rank=0))()
    same(variables[0], OF[0])
    same(variables[2], 0)
    assert np.asarray(variables[3])[0] == R  # a generator keeps its stream
    hvd.barrier()
    assert 0 <= hvd.join() < N


def process_sets():
    assert hvd.global_process_set.ranks == list(range(N)) and hvd.global_process_set.process_set_id == 0
    if N < 3:
        return
    ends = hvd.add_process_set([N - 1, 0])
    rest = hvd.add_process_set(hvd.ProcessSet(range(1, N - 1)))
    own = ends if ends.included() else rest
    assert (own.size(), own.rank()) == (len(own.ranks), own.ranks.index(R))
    same(hvd.allreduce(MINE, process_set=own), ALL[own.ranks].mean(0), 1e-15)
    same(tf.function(lambda x: hvd.allreduce(x, op=hvd.Max, process_set=own))(MINE), OF[own.ranks[-1]])
    same(hvd.allgather(np.array([R]), process_set=own), own.ranks)
    same(hvd.broadcast(MINE, own.ranks[-1], process_set=own), OF[own.ranks[-1]])
    assert hvd.allgather_object(R, process_set=own) == own.ranks
    assert hvd.get_process_set_ids_and_ranks() == {0: list(range(N)), 1: ends.ranks, 2: rest.ranks}
    assert [hvt.size_op(number).numpy() for number in range(3)] == [N, 2, N - 2]
    assert [hvt.process_set_included_op(number).numpy() for number in (0, 1, 3)] == [1, R in ends.ranks, -3]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=ends)
    variable, table = keras.Variable(np.zeros((2, 3))), keras.Variable(np.zeros((N, 3)))
    slices = tf.IndexedSlices(tf.constant(MINE, tf.float32), tf.constant([R, 0]), tf.constant([N, 3]))
    gradient = tf.constant(MINE, tf.float32)
    tf.function(lambda *gradients: optimizer.apply(gradients, [variable, table]))(gradient, slices)
    same(variable, -ALL[ends.ranks].mean(0) if ends.included() else -MINE)
    counted = ends.ranks if ends.included() else [R]
    same(table[0], -sum(OF[r][1] + (OF[r][0] if r == 0 else 0) for r in counted) / len(counted), 1e-6)
    assert hvd.remove_process_set(ends) and not hvd.remove_process_set(ends) and ends.size() is None
    assert not hvd.remove_process_set(hvd.global_process_set)


def trained(epochs, steps, callbacks, momentum=0.0, rate=0.4):
    """The learning rate of each batch, and the logs of each epoch, of a model whose gradient is always 1."""
    rates, every = [], []

    class Notes(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            rates.append(float(self.model.optimizer.learning_rate))

        def on_epoch_end(self, epoch, logs=None):
            every.append(dict(logs))

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(rate, momentum=momentum), lambda y, p: p)
    model.fit(np.ones((steps, 1)), np.ones((steps, 1)), 1, epochs, 0, [*callbacks, Notes()], shuffle=False)
    return rates, every, float(model.get_weights()[0][0, 0])


def callbacks():
    lr, warmup, steps = 0.4, 2, 3
    rates, logs, _ = trained(3, steps, [hvd.callbacks.LearningRateWarmupCallback(lr, warmup)])
    expected = [lr / N * ((e + (b + 1) / steps) * (N - 1) / warmup + 1) for e in range(warmup) for b in range(steps)]
    same(rates, [*expected, *[expected[-1]] * steps], 1e-6)
    assert abs(expected[-1] - lr) < 1e-12  # the whole rate after the warm-up
    same([each["lr"] for each in logs], [rates[2], rates[5], rates[8]], 1e-6)

    rates, _, _ = trained(4, 2, [hvd.callbacks.LearningRateScheduleCallback(lr, 0.5, start_epoch=1, end_epoch=3)])
    same(rates[::2], [lr, lr, lr / 2, lr / 2], 1e-6)
    schedule = [
        hvd.callbacks.LearningRateScheduleCallback(lr, lambda e: 1 / (e + 1), end_epoch=2, staircase=False),
        hvd.callbacks.LearningRateScheduleCallback(lr, 1e-1, start_epoch=2),
    ]
    rates, _, _ = trained(4, 2, schedule)
    same(rates, [lr, lr / 1.5, lr / 2, lr / 2.5, lr, lr, lr / 10, lr / 10], 1e-6)

    # Momentum correction: the velocity holds updates of the old rate.
    halves = hvd.callbacks.LearningRateScheduleCallback(lr, 0.5, momentum_correction=True)
    weight = velocity = 0.0
    old = lr
    for epoch in range(3):
        for _ in range(2):
            new = lr * 0.5**epoch
            velocity = 0.9 * velocity * new / old - new
            weight, old = weight + velocity, new
    same(trained(3, 2, [halves], momentum=0.9)[2], weight, 1e-6)

    class Logged(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs.update(b=R + 1.0, a=float(R**2))

    _, logs, _ = trained(1, 1, [Logged(), hvd.callbacks.MetricAverageCallback()])
    same([logs[0]["b"], logs[0]["a"]], [(N + 1) / 2, np.mean(np.arange(N) ** 2.0)], 1e-12)

    for built in (True, False):
        keras.utils.set_random_seed(R)
        dense = keras.layers.Dense(2)
        model = keras.Sequential([*([keras.Input((3,))] if built else []), dense, keras.layers.Dropout(0.5)])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
        local = dense.kernel if built else None
        share = hvd.callbacks.BroadcastGlobalVariablesCallback(N - 1, local_variables=local)
        model.fit(MINE, MINE[:, :2], 2, 1, verbose=0, callbacks=[share])
        values = [np.asarray(v) for v in [dense.bias, *model.optimizer.variables]]
        for value, other in zip(values, hvd.broadcast_object(values), strict=True):
            same(value, other)
        if not built:
            same(dense.kernel, hvd.broadcast(dense.kernel, 0))
        if built and N > 1:
            kernels = hvd.allgather_object(np.asarray(local))
            assert all((kernels[0] != each).any() for each in kernels[1:])  # each rank kept its own
        seeds = hvd.allgather_object(np.asarray(model.layers[-1].seed_generator.state).tolist())
        assert len({str(each) for each in seeds}) == N or N == 1  # and draws its own masks


for part in (places, reductions, rows, gradients, objects, process_sets, callbacks):
    part()
hvd.shutdown()
assert not hvd.is_initialized()
hvd.init()
assert hvd.size() == N
if N > 1:  # the last calls of this job: the ranks disagree
    said = ""
    try:
        hvd.barrier() if R else hvd.allreduce(1.0)
    except tarantella.MismatchError as error:
        said = str(error)
    assert "make the same calls" in said, said
print("all right", flush=True)
