"""`hvd.callbacks`, by this name too."""

from ...keras.callbacks import *  # noqa: F403
