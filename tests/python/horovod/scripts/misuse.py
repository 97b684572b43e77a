"""Wrong calls, and the sentences they raise. usage: misuse.py FOLDER"""

import sys
from pathlib import Path

import h5py
import keras
import numpy as np
import tensorflow as tf

import tarantella.horovod.keras as hvd
import tarantella.horovod.tensorflow as hvt

FOLDER = Path(sys.argv[1])


def raises(kind, words, call, *args, **options):
    said = "nothing"
    try:
        call(*args, **options)
    except kind as error:
        said = str(error)
    assert words in said, (words, said)


sgd = keras.optimizers.SGD
before = "was called before hvd.init()"
for name in (
    "rank",
    "size",
    "local_rank",
    "local_size",
    "cross_rank",
    "cross_size",
    "is_homogeneous",
    "barrier",
    "join",
):
    raises(ValueError, f"hvd.{name} {before}", getattr(hvd, name))
for name, args in (
    ("allreduce", [1.0]),
    ("allgather", [1.0]),
    ("broadcast", [1.0, 0]),
    ("reducescatter", [[1.0]]),
    ("alltoall", [[1.0]]),
    ("broadcast_object", [1]),
    ("allgather_object", [1]),
    ("broadcast_variables", [[], 0]),
    ("DistributedOptimizer", [sgd()]),
    ("DistributedGradientTape", [tf.GradientTape()]),
    ("add_process_set", [[0]]),
    ("load_model", ["x.keras"]),
):
    raises(ValueError, f"hvd.{name} {before}", getattr(hvd, name), *args)
for name in ("rank_op", "size_op", "local_rank_op", "local_size_op"):
    raises(ValueError, f"hvd.{name} {before}", getattr(hvt, name))
    raises(tf.errors.OpError, f"hvd.{name} {before}", tf.function(getattr(hvt, name)))
assert not hvd.is_initialized()
raises(NotImplementedError, "an MPI communicator", hvd.init, object())
raises(NotImplementedError, "a part of the ranks", hvd.init, [7])
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
share = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
raises(
    ValueError, "BroadcastGlobalVariablesCallback " + before, model.fit, np.ones((2, 2)), np.ones(2), callbacks=[share]
)

for _ in range(2):  # the first failure leaves nothing behind
    raises(ValueError, "rank 9", hvd.init, process_sets=[hvd.ProcessSet([0, 9])])
    assert not hvd.is_initialized()
hvd.init([0], process_sets=[])
wrapped = hvd.DistributedOptimizer(sgd())
raises(ValueError, "this SGD is wrapped by hvd.DistributedOptimizer already", hvd.DistributedOptimizer, wrapped)
around = keras.optimizers.LossScaleOptimizer(wrapped)
raises(ValueError, "LossScaleOptimizer is wrapped", hvd.DistributedOptimizer, around)
model.compile(around, "mse")
raises(ValueError, "wrap the outer one", model.fit, np.ones((2, 2)), np.ones(2), callbacks=[share])
keras.config.set_dtype_policy("mixed_float16")
assert isinstance(hvd.DistributedOptimizer(sgd()), keras.optimizers.LossScaleOptimizer)
keras.config.set_dtype_policy("float32")
raises(TypeError, "(got str); pass an optimizer, not its name", hvd.DistributedOptimizer, "adam")
raises(TypeError, "(got Sequential)", hvd.DistributedOptimizer, model)
raises(ValueError, "op must be one of hvd.Average, hvd.Sum", hvd.DistributedOptimizer, sgd(), op=hvd.Max)
raises(NotImplementedError, "Adasum is not offered", hvd.DistributedOptimizer, sgd(), op=hvd.Adasum)
raises(NotImplementedError, "Adasum is not offered", hvd.allreduce, 1.0, op=hvd.Adasum)
raises(ValueError, "op must be one of", hvd.allreduce, 1.0, op=17)
raises(ValueError, "not both", hvd.allreduce, 1.0, average=True, op=hvd.Sum)
raises(ValueError, "above 0 (got 0)", hvd.DistributedOptimizer, sgd(), backward_passes_per_step=0)
positions = [None, False, "", "", hvd.Compression.none, False]  # Horovod's order for TensorFlow: the passes, then op
raises(ValueError, "above 0 (got 0)", hvt.DistributedOptimizer, sgd(), *positions, 0)
raises(ValueError, "(got <ReduceOp.MAX", hvt.DistributedOptimizer, sgd(), *positions, 1, hvd.Max)
raises(ValueError, "needs op=hvd.Average", hvd.DistributedOptimizer, sgd(), gradient_predivide_factor=2.0, op=hvd.Sum)
raises(ValueError, "groups must be", hvd.DistributedOptimizer, sgd(), groups=-1)
raises(ValueError, "pass it to hvd.init", hvd.DistributedOptimizer, sgd(), process_set=hvd.ProcessSet([0]))
raises(ValueError, "must be above 0 (got 0)", hvd.DistributedOptimizer, sgd(), gradient_predivide_factor=0)
raises(TypeError, "(got 'fp16')", hvd.DistributedOptimizer, sgd(), compression="fp16")
raises(TypeError, "(got [0])", hvd.DistributedOptimizer, sgd(), process_set=[0])
raises(ValueError, "groups must be", hvd.DistributedGradientTape, tf.GradientTape(), groups=-1)
layer = keras.layers.Dense(1)
raises(ValueError, "has no weights yet", hvd.PartialDistributedOptimizer, sgd(), local_layers=layer)
raises(TypeError, "must be Keras layers", hvd.PartialDistributedOptimizer, sgd(), local_layers=["x"])
raises(TypeError, "needs a tf.GradientTape (got int)", hvd.DistributedGradientTape, 1)
with tf.GradientTape() as tape:
    x = tf.constant(1.0)
    tape.watch(x)
    y = x * x
raises(TypeError, "of variables only", hvd.DistributedGradientTape(tape).gradient, y, x)
table = keras.Variable(np.ones((3, 2)))
passes = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2)
slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]), tf.constant([3, 2]))
raises(ValueError, "sparse_as_dense=True", passes.apply, [slices], [table])

raises(ValueError, "already has a process set of the ranks [0]", hvd.add_process_set, [0])
raises(ValueError, "no process set has the id 99 (there are [0", hvt.size_op, 99)
raises(ValueError, "different whole numbers", hvd.ProcessSet, [0, 0])
raises(ValueError, "needs a list of ranks", hvd.ProcessSet, object())
raises(ValueError, "rank 9", hvd.add_process_set, [0, 9])
raises(ValueError, "cannot scatter a scalar", hvd.reducescatter, 1.0)
raises(ValueError, "a whole number for each of the 1 ranks", hvd.alltoall, [1.0, 2.0], splits=[1, 1])
raises(ValueError, "a whole number for each of the 1 ranks", hvd.alltoall, [1.0, 2.0], splits=[2.0])
raises(ValueError, "splits must", hvd.alltoall, [1.0, 2.0], splits=[1])
raises(ValueError, "rank 3 is not in the group", hvd.broadcast_variables, [table], 3)

raises(FileNotFoundError, "there is no file 'nothing.keras'", hvd.load_model, "nothing.keras")
for name in ("foreign.keras", "foreign.h5", "foreign.txt"):
    (FOLDER / name).write_text("no model")
    raises(ValueError, "as a model of Keras 3", hvd.load_model, FOLDER / name)
keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(FOLDER / "plain.h5")
with h5py.File(FOLDER / "plain.h5") as file:
    assert not hvd.load_model(file).compiled
raises(NotImplementedError, "no legacy optimizers", hvd.load_model, "x.keras", legacy_opts=True)

raises(NotImplementedError, "elastic.KerasState is not offered", lambda: hvd.elastic.KerasState)
raises(NotImplementedError, "--timeline", hvd.start_timeline, "x.json")
raises(RuntimeError, "hvd.broadcast_variables", hvd.broadcast_global_variables, 0)
raises(ValueError, "cannot be fused", hvd.SyncBatchNormalization, fused=True)
keras.Sequential([keras.Input((2,)), hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization()])
callbacks = hvd.callbacks
raises(ValueError, "needs initial_lr", callbacks.LearningRateWarmupCallback, None)
for wrong in (1, keras.layers.Dense(1)):
    raises(TypeError, "must be a variable", callbacks.BroadcastGlobalVariablesCallback, 0, local_variables=[wrong])


def fit(callback, rate=0.1, data=None):
    model.compile(sgd(rate), "mse")
    data = tf.data.Dataset.from_tensors((np.ones((2, 2)), np.ones(2))) if data is None else data
    model.fit(data, verbose=0, callbacks=[callback])


raises(ValueError, "pass filepath=", fit, callbacks.BestModelCheckpoint())
best = callbacks.BestModelCheckpoint("loss", save_weights_only=True)
best.filepath = str(FOLDER / "best.weights.h5")
fit(best)
model.load_weights(FOLDER / "best.weights.h5")
decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
raises(ValueError, "give the SGD a number", fit, callbacks.LearningRateWarmupCallback(0.1), decay)
endless = tf.data.Dataset.from_tensors((np.ones((2, 2)), np.ones(2))).filter(lambda x, y: True)
raises(ValueError, "needs steps_per_epoch", fit, callbacks.LearningRateWarmupCallback(0.1), 0.1, endless)
print("all seen")
