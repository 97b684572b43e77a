"""The tasks of keras-hub, in small: classes with a `fit` of their own, which feed grain datasets, and own layers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from common import Wrap, case, full, trained

# Installed by `tools/setup.sh --dev`, without what it requires: see tools/keras_hub.txt.
FOLDER = Path(__file__).parents[4] / "build" / "keras-hub"
SAMPLES, WORDS, LENGTH = 22, 30, 12
RANDOM = np.random.default_rng(0)


def keras_hub() -> Any:
    """The package, None where it is not installed."""
    if FOLDER.is_dir() and str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    try:
        import keras_hub as package
    except ImportError:
        return None
    return package


def text() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    mask = random.integers(0, 2, (SAMPLES, LENGTH))
    mask[:, 0] = 1
    words = random.integers(0, WORDS, (SAMPLES, LENGTH))
    return {"token_ids": words, "padding_mask": mask}, random.integers(0, WORDS, (SAMPLES, LENGTH))


SMALL = {
    "vocabulary_size": WORDS,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": LENGTH,
    "dropout": 0.0,
}


@case
def bert_text_classifier(wrap: Wrap) -> Any:
    if (hub := keras_hub()) is None:
        return None
    backbone = hub.models.BertBackbone(**SMALL, dtype="float64")
    model = wrap(hub.models.BertTextClassifier(backbone, 3, preprocessor=None, dropout=0.0, dtype="float64"))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    x, _ = text()
    x["segment_ids"] = np.zeros_like(x["token_ids"])
    y = np.arange(SAMPLES) % 3
    history = model.fit(x, y, batch_size=6, epochs=2, validation_split=0.25, verbose=0)
    found = [trained(model, history), model.evaluate(x, y, batch_size=5, verbose=0), model.predict(x, verbose=0)]
    return [*found, model.train_on_batch({k: v[:7] for k, v in x.items()}, y[:7])]


class Generates(keras.callbacks.Callback):
    """Has the model, as it is after each epoch, go on with the first words, and keeps what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[Any] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        x, _ = text()
        start = {"token_ids": x["token_ids"][:2], "padding_mask": (np.arange(LENGTH) < 4)[None].repeat(2, 0)}
        said = self.model.generate(start, max_length=LENGTH, stop_token_ids=None)
        self.said.append(np.asarray(said["token_ids"]))


def gpt2(wrap: Wrap, lora: bool) -> Any:
    if (hub := keras_hub()) is None:
        return None
    backbone = hub.models.GPT2Backbone(**SMALL, dtype="float64")
    if lora:
        backbone.enable_lora(2)
    model = wrap(hub.models.GPT2CausalLM(backbone, preprocessor=None))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, weighted_metrics=["accuracy"], sampler="greedy")
    x, y = text()
    callback, weights = Generates(), x["padding_mask"].astype(float)
    options = {"callbacks": [callback], "validation_data": (x, y, weights), "verbose": 0}
    history = model.fit(x, y, sample_weight=weights, batch_size=6, epochs=2, **options)
    return [trained(model, history), callback.said]


@case
def gpt2_that_generates(wrap: Wrap) -> Any:
    return gpt2(wrap, lora=False)


@full
@case
def gpt2_with_lora_float32(wrap: Wrap) -> Any:
    return gpt2(wrap, lora=True)


def resnet(hub: Any, size: int, dtype: str) -> Any:
    return hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 8, 8],
        stackwise_num_blocks=[1, 1, 1],
        stackwise_num_strides=[1, 2, 2],
        block_type="basic_block",
        use_pre_activation=False,
        image_shape=(size, size, 3),
        dtype=dtype,
    )


def synchronize(model: Any) -> None:
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True


@full
@case
def image_classifier(wrap: Wrap) -> Any:
    if (hub := keras_hub()) is None:
        return None
    model = hub.models.ImageClassifier(resnet(hub, 32, "float64"), 3, preprocessor=None, dtype="float64")
    synchronize(model)
    model = wrap(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    x, y = RANDOM.normal(size=(15, 32, 32, 3)), np.arange(15) % 3
    history = model.fit(x, y, batch_size=6, epochs=2, validation_data=(x[:5], y[:5]), verbose=0)
    return [trained(model, history), model.predict(x, batch_size=4, verbose=0)]


@full
@case
def retinanet_detector_float32(wrap: Wrap) -> Any:
    """Its own compute_loss divides by the number of positive anchors in the batch."""
    if (hub := keras_hub()) is None:
        return None
    backbone = hub.models.RetinaNetBackbone(resnet(hub, 64, "float32"), min_level=3, max_level=4, use_p5=False)
    model = hub.models.RetinaNetObjectDetector(backbone, 3, "xyxy", pre_logits_num_conv_layers=1)
    synchronize(model)
    model = wrap(model)
    model.compile(keras.optimizers.SGD(1e-4))
    random = np.random.default_rng(0)
    x = random.normal(size=(10, 64, 64, 3)).astype("float32")
    corners = random.uniform(0, 30, (10, 4, 2))
    boxes = np.concatenate([corners, corners + random.uniform(28, 34, (10, 4, 2))], -1).astype("float32")
    labels = random.integers(0, 3, (10, 4)).astype("float32")
    boxes[3:, 1:] = labels[3:, 1:] = -1  # most pictures have a single box
    y = {"boxes": boxes, "labels": labels}
    history = model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    return [dict(history.history), model.evaluate(x, y, batch_size=4, verbose=0)]
