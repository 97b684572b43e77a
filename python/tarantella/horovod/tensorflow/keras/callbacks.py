"""`hvd.callbacks`, by this name too."""

from ...callbacks import *  # noqa: F403
