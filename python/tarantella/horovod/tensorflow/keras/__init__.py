"""`import tarantella.horovod.tensorflow.keras as hvd`: `tarantella.horovod.keras`, by its other name."""

from ...keras import *  # noqa: F403
