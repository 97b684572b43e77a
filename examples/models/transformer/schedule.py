"""The learning rate of "Attention Is All You Need"."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


class LearningRateSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly for `warmup_steps` steps, then falls with the root of the step.

    The highest rate is `initial_learning_rate / sqrt(hidden_size * warmup_steps)`.
    """

    def __init__(self, initial_learning_rate: float, hidden_size: int, warmup_steps: int) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.hidden_size = hidden_size
        self.warmup_steps = warmup_steps

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        warmup = float(self.warmup_steps)
        rate = self.initial_learning_rate * self.hidden_size**-0.5
        return rate * ops.minimum(1.0, step / warmup) / ops.sqrt(ops.maximum(step, warmup))

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "hidden_size": self.hidden_size,
            "warmup_steps": self.warmup_steps,
        }
