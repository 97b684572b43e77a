"""The loss of a token: cross-entropy with smoothed labels."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops


class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy where the right token has the probability `1 - label_smoothing`, and all others share the rest.

    y_true: tokens, of shape (batch, length). y_pred: logits, of shape (batch, length, vocabulary). The result is the
    mean over tokens, weighted by sample weights: those of padding are 0. The least value is 0.
    """

    def __init__(self, label_smoothing: float, name: str = "smoothed_crossentropy") -> None:
        super().__init__(name=name, reduction="mean_with_sample_weight")
        self.label_smoothing = label_smoothing

    def call(self, y_true: Any, y_pred: Any) -> Any:
        others = y_pred.shape[-1] - 1
        right, wrong = 1 - self.label_smoothing, self.label_smoothing / others
        least = -right * math.log(right) - (others * wrong * math.log(wrong) if wrong else 0)
        of_token = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        of_all = ops.logsumexp(y_pred, axis=-1) - ops.mean(y_pred, axis=-1)  # the mean over all tokens as labels
        return (right - wrong) * of_token + wrong * (others + 1) * of_all - least

    def get_config(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing, "name": self.name}
