"""The sizes of the Transformer, and how each is trained.

The values are those of the TensorFlow Model Garden, "base" and "big" those that it has for several GPUs. The paper has
a learning rate of 1.0, 4,000 steps of warm-up and an optimizer_adam_beta2 of 0.98.
"""

from __future__ import annotations

from typing import Any

Params = dict[str, Any]

BASE: Params = {
    "default_batch_size": 2048,  # tokens of a step, on all ranks together
    "max_length": 256,  # tokens of a sentence
    "hidden_size": 512,
    "num_hidden_layers": 6,  # of the encoder, and of the decoder
    "num_heads": 8,
    "filter_size": 2048,  # of the feed-forward networks
    "layer_postprocess_dropout": 0.1,  # of what each sub-layer adds
    "attention_dropout": 0.1,  # of attention weights
    "relu_dropout": 0.1,  # within the feed-forward networks
    "label_smoothing": 0.1,
    "learning_rate": 2.0,  # before the factors of schedule.py
    "learning_rate_warmup_steps": 16_000,
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.997,
    "optimizer_adam_epsilon": 1e-9,
    "extra_decode_length": 50,  # how many tokens a translation may have more than its source
    "beam_size": 4,
    "alpha": 0.6,  # of the length penalty of the beam search
}
PARAM_SETS: dict[str, Params] = {
    "tiny": {**BASE, "default_batch_size": 1024, "hidden_size": 32, "num_heads": 4, "filter_size": 256},
    "base": {**BASE, "learning_rate_warmup_steps": 8_000},
    "big": {
        **BASE,
        "default_batch_size": 4096,
        "hidden_size": 1024,
        "num_heads": 16,
        "filter_size": 4096,
        "layer_postprocess_dropout": 0.3,
        "learning_rate_warmup_steps": 8_000,
    },
}


def get_model_params(param_set: str) -> Params:
    """Returns a copy of the set named "tiny", "base" or "big"."""
    return dict(PARAM_SETS[param_set])
