"""A script as Horovod's users have them: only the name of its import differs."""

import sys

import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import tensorflow as tf

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

folder, epochs = sys.argv[1], 4
keras.utils.set_random_seed(hvd.rank())
rng = np.random.default_rng(0)
labels = rng.integers(0, 4, 512)
images = (0.2 * rng.normal(size=(512, 8, 8, 1)) + np.eye(4)[labels].repeat(16, 1).reshape(-1, 8, 8, 1)).astype(
    "float32"
)
dataset = tf.data.Dataset.from_tensor_slices((images[:448], labels[:448]))
dataset = dataset.shard(hvd.size(), hvd.rank()).repeat().shuffle(100, seed=hvd.rank()).batch(16)

model = keras.Sequential(
    [
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(4, activation="softmax"),
    ]
)
scaled_lr = 0.01 * hvd.size()
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(scaled_lr), backward_passes_per_step=1)
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, verbose=1),
    keras.callbacks.ReduceLROnPlateau(patience=10, verbose=1),
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint(folder + "/checkpoint-{epoch}.keras"))
history = model.fit(
    dataset,
    steps_per_epoch=28 // hvd.size(),
    callbacks=callbacks,
    epochs=epochs,
    verbose=2 if hvd.rank() == 0 else 0,
    validation_data=(images[448:], labels[448:]),
)
score = hvd.allreduce(model.evaluate(images[448:], labels[448:], verbose=0)[1])
if hvd.rank() == 0:
    print(f"accuracy {float(score):.3f} with {hvd.size()} ranks")
