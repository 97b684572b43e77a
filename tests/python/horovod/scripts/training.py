"""Trains models as Horovod's users do, each rank on rows of its own; without ranks as plain Keras on all rows.

usage: training.py FOLDER [plain SIZE]
"""

import sys

import keras
import numpy as np
import tensorflow as tf

FOLDER, PLAIN = sys.argv[1], sys.argv[2:3] == ["plain"]
if PLAIN:
    R, N = 0, int(sys.argv[3])
else:
    import tarantella.horovod.tensorflow.keras as hvd

    hvd.init()
    R, N = hvd.rank(), hvd.size()
BATCH, STEPS = 4, 3
keras.config.set_floatx("float64")
OF = [np.random.default_rng(r).normal(size=(BATCH * STEPS, 5)) for r in range(N)]
found = {}


def data(count=STEPS):
    """This rank's rows, or those of the batches of all ranks."""
    if not PLAIN:
        return OF[R][: BATCH * count]
    return np.concatenate([each[BATCH * s : BATCH * (s + 1)] for s in range(count) for each in OF])


def labels(x):
    return (x**2).sum(1, keepdims=True)


def network(*more):
    keras.utils.set_random_seed(3 if PLAIN else 3 + R)
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(7, "tanh"), *more, keras.layers.Dense(1)])


def fit(model, optimizer, callbacks=(), batches=1, epochs=2, jit_compile=False, **options):
    """`batches`: of how many batches the plain process takes the rows at once."""
    x = data()
    if not PLAIN:
        optimizer = hvd.DistributedOptimizer(optimizer, **options)
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), *callbacks]
    # Keras cannot load losses by name from .h5 files.
    metrics = [keras.metrics.MeanAbsoluteError("mae")]
    model.compile(optimizer, keras.losses.MeanSquaredError(), metrics=metrics, jit_compile=jit_compile)
    size = BATCH * N * batches if PLAIN else BATCH
    history = model.fit(x, labels(x), size, epochs, 0, callbacks, shuffle=False)
    found[sys._getframe(1).f_code.co_name] = [np.asarray(v) for v in model.get_weights()]
    return history


def average():
    """With momentum, a warm-up of an epoch and averaged metrics."""
    lr, model = 0.05 * N, network()
    if PLAIN:

        class Rates(keras.callbacks.Callback):
            old = lr

            def on_epoch_begin(self, epoch, logs=None):
                self.epoch = epoch

            def on_train_batch_begin(self, batch, logs=None):
                self.model.optimizer.learning_rate = (
                    lr / N * ((batch + 1) / STEPS * (N - 1) + 1) if self.epoch == 0 else lr
                )
                new = float(self.model.optimizer.learning_rate)
                for v in self.model.optimizer.variables:
                    if v.name.endswith("_momentum"):
                        v.assign(v * new / self.old)
                self.old = new

        callbacks = [Rates()]
    else:
        callbacks = [hvd.callbacks.MetricAverageCallback(), hvd.callbacks.LearningRateWarmupCallback(lr, 1)]
    history = fit(model, keras.optimizers.SGD(lr, momentum=0.9), callbacks)
    found["logs"] = [np.array(history.history[name]) for name in ("loss", "mae")]


def total():
    op = {} if PLAIN else {"op": hvd.Sum}
    fit(network(), keras.optimizers.SGD(0.01 * (N if PLAIN else 1)), jit_compile=True, **op)


def adaptive():
    options = (
        {} if PLAIN else {"gradient_predivide_factor": 4.0, "groups": 2, "name": "Named", "device_dense": "/cpu:0"}
    )
    fit(network(), keras.optimizers.Adam(0.02, global_clipnorm=0.1), **options)


def passes():
    options = {} if PLAIN else {"backward_passes_per_step": 3, "average_aggregated_gradients": True}
    model = network()
    fit(model, keras.optimizers.SGD(0.05, momentum=0.5), batches=3, epochs=3, **options)
    found["iterations"] = [np.asarray(model.optimizer.iterations) * (3 if PLAIN else 1)]


def compressed():
    for kind in ("fp16", "bf16"):
        model = network()
        fit(model, keras.optimizers.SGD(0.05), **({} if PLAIN else {"compression": getattr(hvd.Compression, kind)}))
        found[kind] = found.pop("compressed")


def normalized():
    layer = keras.layers.BatchNormalization if PLAIN else hvd.SyncBatchNormalization
    fit(network(layer()), keras.optimizers.SGD(0.05))


def embedded():
    """Sparse gradients, two losses and their mean, in a loop of the user's own, eager and in a tf.function."""
    for mode in (lambda function: function, tf.function):
        layers = [
            keras.layers.Embedding(6, 3, "ones"),
            keras.layers.Flatten(),
            keras.layers.Dense(1, None, True, "ones"),
        ]
        model = keras.Sequential(layers)
        model.build((None, 5))
        optimizer = keras.optimizers.SGD(0.05)

        @mode
        def step(x, y, model=model, optimizer=optimizer):
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
                penalty = tf.reduce_mean(model(x) ** 2)
            if not PLAIN:
                tape = hvd.DistributedGradientTape(tape)
            first, second = (tape.gradient(each, model.trainable_variables) for each in (loss, penalty))
            optimizer.apply(first, model.trainable_variables)
            optimizer.apply(second, model.trainable_variables)
            return loss if PLAIN else hvd.allreduce(loss)

        rows = np.abs(data() * 2).astype(int) % 6
        size = BATCH * N if PLAIN else BATCH
        losses = []
        for start in range(0, len(rows), size):
            x = tf.constant(rows[start : start + size])
            losses.append(float(step(x, tf.cast(tf.reduce_sum(x, 1, keepdims=True), tf.float64))))
        name = "eager" if mode is not tf.function else "graph"
        found[f"tape_{name}"] = [np.array(losses), *model.get_weights()]


def local():
    """A layer of each rank's own: its gradient is this rank's, divided by the number of ranks."""
    model = network()
    kernel = model.layers[0].kernel
    if PLAIN:
        return
    start = hvd.allgather_object(np.asarray(kernel).copy())
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.05), local_layers=[model.layers[0]])
    model.compile(optimizer, "mse")
    share = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[kernel, model.layers[0].bias])
    model.build((None, 5))
    weights = hvd.broadcast_object([np.asarray(v) for v in model.layers[1].variables])
    twin = keras.models.clone_model(model)
    twin.set_weights([start[R], np.zeros(7), *weights])
    x = OF[R][:BATCH]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((twin(x) - labels(x)) ** 2)
    own = [np.asarray(g) for g in tape.gradient(loss, [v.value for v in twin.trainable_variables])]
    shared = [hvd.allreduce(g).numpy() for g in own[2:]]
    model.fit(x, labels(x), BATCH, 1, 0, [share])
    expected = [
        np.asarray(v) - 0.05 * g for v, g in zip(twin.variables, [g / N for g in own[:2]] + shared, strict=True)
    ]
    for got, right in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(got, right, 1e-12, 1e-12)


def saved():
    """Saved by rank 0 as plain Keras saves; loaded and trained on."""
    x = data()
    size = BATCH * N if PLAIN else BATCH
    for suffix in ("keras", "h5", "resumed"):
        path = f"{FOLDER}/model.{suffix}" if suffix != "resumed" else f"{FOLDER}/model.keras"
        callbacks = []
        if suffix == "resumed" and not PLAIN:
            callbacks.append(hvd.callbacks.BroadcastGlobalVariablesCallback(0))
        elif not PLAIN:
            model = network()
            fit(model, keras.optimizers.Adam(0.02))
            assert type(model.optimizer) is keras.optimizers.Adam
            if hvd.rank() == 0:
                model.save(path)
            hvd.barrier()
        if suffix == "resumed" and R > 0:  # only rank 0 reads the checkpoint, and the others get what it has
            model = network()
            optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.02))
            model.compile(optimizer, keras.losses.MeanSquaredError(), experimental_run_tf_function=False)
        else:
            model = keras.models.load_model(path) if PLAIN else hvd.load_model(path)
        assert type(model.optimizer) is keras.optimizers.Adam
        if suffix == "keras":
            assert int(model.optimizer.iterations) == 2 * STEPS
        elif PLAIN and suffix == "h5":  # Keras cannot train a model on with the optimizer from this file
            model.compile(keras.optimizers.Adam(0.02), keras.losses.MeanSquaredError())
        model.fit(x, labels(x), size, 1, 0, callbacks, shuffle=False)
        found[suffix] = model.get_weights()
    found.pop("saved", None)


def best():
    """ReduceLROnPlateau and the best model go by averaged metrics."""
    if PLAIN:
        return
    model = network()
    callbacks = [
        hvd.callbacks.MetricAverageCallback(),
        keras.callbacks.ReduceLROnPlateau("loss", 0.5, 1, min_delta=9e9),
    ]
    if hvd.rank() == 0:
        callbacks.append(hvd.callbacks.BestModelCheckpoint("loss", filepath=f"{FOLDER}/best.keras"))
    history = fit(model, keras.optimizers.SGD(0.01), callbacks, epochs=3)
    assert hvd.allgather_object(history.history) == [history.history] * N
    found.pop("best")


for part in (average, total, adaptive, passes, compressed, normalized, embedded, local, saved, best):
    part()
assert ("tarantella" in sys.modules) is not PLAIN
np.savez(
    f"{FOLDER}/{'plain' if PLAIN else R}.npz", **{f"{k}.{i}": v for k, vs in found.items() for i, v in enumerate(vs)}
)
print("all right", flush=True)
