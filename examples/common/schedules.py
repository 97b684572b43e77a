"""The learning rate of ResNet-50 on ImageNet, as Goyal et al. (arXiv:1706.02677) scale it with the batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

BASE_LEARNING_RATE, BASE_BATCH_SIZE = 0.1, 256
# A factor of the learning rate, and the epoch from which it holds. The first one ends the warm-up.
LR_SCHEDULE = ((1.0, 5), (0.1, 30), (0.01, 60), (0.001, 80))


@keras.saving.register_keras_serializable(package="tarantella_examples")
class PiecewiseConstantDecayWithWarmup(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly for `warmup_epochs`, then is multiplied by `multipliers[i]` from epoch `boundaries[i - 1]` on.

    The rate after the warm-up is proportional to the global batch size: BASE_LEARNING_RATE for `base_lr_batch_size`.

    Args:
        batch_size: of all ranks together.
        epoch_size: number of training images.
        boundaries: epochs, one fewer than `multipliers`.
    """

    def __init__(
        self,
        batch_size: int,
        epoch_size: int,
        warmup_epochs: int = LR_SCHEDULE[0][1],
        boundaries: Sequence[int] = tuple(epoch for _, epoch in LR_SCHEDULE[1:]),
        multipliers: Sequence[float] = tuple(factor for factor, _ in LR_SCHEDULE),
        base_lr_batch_size: int = BASE_BATCH_SIZE,
    ) -> None:
        if len(boundaries) != len(multipliers) - 1:
            raise ValueError(f"{len(multipliers)} multipliers need {len(multipliers) - 1} boundaries")
        steps_per_epoch = epoch_size // batch_size
        if steps_per_epoch < 1:
            raise ValueError(f"a batch of {batch_size} images is larger than an epoch of {epoch_size}")
        self.config = {
            "batch_size": batch_size,
            "epoch_size": epoch_size,
            "warmup_epochs": warmup_epochs,
            "boundaries": list(boundaries),
            "multipliers": list(multipliers),
            "base_lr_batch_size": base_lr_batch_size,
        }
        self.rescaled_lr = BASE_LEARNING_RATE * batch_size / base_lr_batch_size
        self.warmup_steps = warmup_epochs * steps_per_epoch
        self.after_warmup = keras.optimizers.schedules.PiecewiseConstantDecay(
            [steps_per_epoch * epoch for epoch in boundaries], [self.rescaled_lr * factor for factor in multipliers]
        )

    def __call__(self, step: Any) -> Any:
        def warmup_lr(step: Any) -> Any:
            return self.rescaled_lr * (step / max(self.warmup_steps, 1))

        step = ops.cast(step, "float32")
        return ops.where(step < self.warmup_steps, warmup_lr(step), self.after_warmup(step))

    def get_config(self) -> dict[str, Any]:
        return self.config
