#!/usr/bin/env python
"""Trains a Transformer to translate, on one or many ranks.

tarantella -n 2 -- transformer_tnt.py --data_dir wmt --param_set=tiny --batch_size=4096
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`

import data_pipeline
import keras
import transformer
import transformer_main
from common import time_history as keras_utils
from common.checkpoints import restore
from common.errors import InputError
from loss import SmoothedCrossentropy
from model_params import PARAM_SETS, Params, get_model_params
from schedule import LearningRateSchedule
from tokenizer import Subtokenizer

import tarantella as tnt

CHECKPOINT = "cp-{epoch:04d}.weights.h5"


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data_dir", required=True, metavar="DIR", help="the folder with wmt32k-* or wmt14_translate-* TFRecords")
    add("--vocab_file", metavar="FILE", help="the vocabulary (default: vocab.ende.* in --data_dir)")
    add("--bleu_source", metavar="FILE", help="a text that is translated after training, one sentence a line")
    add("--bleu_ref", metavar="FILE", help="its right translation, with which BLEU is computed")
    add("--param_set", choices=PARAM_SETS, default="big", help="the size of the model (default: %(default)s)")
    add("--train_epochs", type=int, default=1, metavar="N")
    add("--epochs_between_evals", type=int, default=1, metavar="N", help="epochs between two rounds of evaluation")
    add("--batch_size", type=int, metavar="N", help="tokens of a step, on all ranks together (default: of the set)")
    add("--max_length", type=int, metavar="N", help="tokens of a sentence; longer ones are left out (default: 256)")
    add("--model_dir", metavar="DIR", help="where checkpoints are written, and training goes on from the last one")
    add("--enable_time_history", action="store_true", help="log the speed of training")
    add("--enable_tensorboard", action="store_true", help="write logs for TensorBoard to --model_dir")
    add("--skip_truncated", action="store_true", help="leave truncated data files out instead of ending")
    add("--seed", type=int, default=42, metavar="N")
    # These override the set of parameters.
    add("--learning_rate", type=float, metavar="RATE", help="the factor of the schedule")
    add("--learning_rate_warmup_steps", type=int, metavar="N", help="the steps in which the learning rate rises")
    add("--dropout", type=float, metavar="RATE", help="all three rates of dropout")
    add("--label_smoothing", type=float, metavar="SHARE", help="the probability that wrong tokens share")
    add("--extra_decode_length", type=int, metavar="N", help="tokens that a translation may have more than its source")
    add("--decode_batch_size", type=int, default=32, metavar="N", help="sentences translated at a time")
    args = parser.parse_args(arguments)

    for name, value in vars(args).items():
        least = 0 if name in ("seed", "extra_decode_length") else 1
        if isinstance(value, int) and not isinstance(value, bool) and value < least:
            parser.error(f"--{name} is {value}, but must be at least {least}")
    for name in ("dropout", "label_smoothing"):
        value = getattr(args, name)
        if value is not None and not 0 <= value < 1:
            parser.error(f"--{name} is {value:g}, but must be from 0 to below 1")
    if (args.bleu_source is None) != (args.bleu_ref is None):
        parser.error("--bleu_source and --bleu_ref belong together")
    if args.enable_tensorboard and not args.model_dir:
        parser.error("--enable_tensorboard needs --model_dir")
    return args


def get_params(flags_obj: argparse.Namespace) -> Params:
    """Returns the set of parameters with what the options change. Raises InputError."""
    params = get_model_params(flags_obj.param_set)
    given = {name: value for name, value in vars(flags_obj).items() if value is not None}
    if "dropout" in given:
        for name in ("layer_postprocess_dropout", "attention_dropout", "relu_dropout"):
            params[name] = given["dropout"]
    params = {**params, "batch_size": params["default_batch_size"], **given}
    params["num_sentences"] = params["batch_size"] // params["max_length"]  # of a step, on all ranks together
    if params["num_sentences"] < 1:
        raise InputError(f"--batch_size {params['batch_size']} is below --max_length {params['max_length']}")
    if not Path(flags_obj.data_dir).is_dir():
        raise InputError(f"the data folder {flags_obj.data_dir} does not exist")
    if flags_obj.vocab_file is None:
        found = sorted(Path(flags_obj.data_dir).glob("vocab.ende.*"))
        if len(found) != 1:
            raise InputError(f"{flags_obj.data_dir} has {len(found)} files vocab.ende.*: name one with --vocab_file")
        flags_obj.vocab_file = params["vocab_file"] = str(found[0])
    params["vocab_size"] = Subtokenizer(params["vocab_file"]).vocab_size
    return params


def create_model(internal_model: transformer.Transformer, params: Params, is_train: bool) -> keras.Model:
    """Returns a model around the Transformer, whose weights all such models share.

    In training it maps source and target to logits. Otherwise it maps the source to a translation and its score.
    """
    inputs = keras.Input((None,), dtype="int64", name="inputs")
    if not is_train:
        return keras.Model(inputs, transformer.Translator(internal_model)(inputs))
    targets = keras.Input((None,), dtype="int64", name="targets")
    logits = internal_model([inputs, targets])
    logits = keras.layers.Activation("linear", dtype="float32", name="logits")(logits)
    return keras.Model([inputs, targets], logits)


class TransformerTntTask:
    """Trains the model on all ranks, and evaluates it on the master. Raises InputError before training."""

    def __init__(self, flags_obj: argparse.Namespace) -> None:
        self.flags_obj = flags_obj
        self.params = get_params(flags_obj)
        if flags_obj.bleu_source:
            transformer_main.read_pair(flags_obj.bleu_source, flags_obj.bleu_ref)
        keras.utils.set_random_seed(self.params["seed"])

        # Transformer model used both as Tarantella model (in training) and as a serial
        # model for inference
        internal_model = transformer.Transformer(self.params, name="transformer_v2")

        # The train model includes an additional logits layer and a customized loss
        self.train_model = create_model(internal_model, self.params, is_train=True)
        # Enable distributed training
        self.train_model = tnt.Model(self.train_model)

        # The inference model is wrapped as a different Keras model that does not use labels
        self.predict_model = create_model(internal_model, self.params, is_train=False)

    def train(self) -> dict[str, list[float]]:
        """Trains with rounds of evaluation in between. Returns the losses of all epochs, and on the master BLEU."""
        stats: dict[str, list[float]] = {"loss": [], "dev_loss": [], "bleu_uncased": [], "bleu_cased": []}
        self.compile()
        first_epoch = self.load_checkpoint()
        if first_epoch >= self.params["train_epochs"]:
            if tnt.is_master_rank():
                done = "All %d epochs are done: the newest checkpoint in %s is of epoch %d"
                logging.info(done, self.params["train_epochs"], self.flags_obj.model_dir, first_epoch)
            return stats
        train_ds = data_pipeline.train_input_fn(
            self.params,
            shuffle_seed=self.params["seed"] + first_epoch,  # a run that is resumed reads in another order
            num_ranks=tnt.get_size(),
            rank=tnt.get_rank(),
        )
        dev_ds = data_pipeline.eval_input_fn(self.params)
        callbacks = self.create_callbacks()
        if tnt.is_master_rank():
            logging.info("Start train")

        for epoch in range(first_epoch, self.params["train_epochs"], self.params["epochs_between_evals"]):
            # as our dataset is distributed manually, disable the automatic Tarantella distribution
            history = self.train_model.fit(
                train_ds,
                callbacks=callbacks,
                tnt_distribute_dataset=False,
                initial_epoch=epoch,
                epochs=epoch + min(self.params["epochs_between_evals"], self.params["train_epochs"] - epoch),
                verbose=2,
            )
            stats["loss"] += history.history["loss"]
            if dev_ds is not None:  # in global batches, which Tarantella distributes
                stats["dev_loss"].append(self.train_model.evaluate(dev_ds, verbose=0)[0])
                if tnt.is_master_rank():
                    logging.info("Loss of the dev sentences: %.4f", stats["dev_loss"][-1])

            if tnt.is_master_rank() and self.flags_obj.bleu_source:
                uncased_score, cased_score = self.eval()
                stats["bleu_uncased"].append(uncased_score)
                stats["bleu_cased"].append(cased_score)
        return stats

    def eval(self) -> tuple[float, float]:
        """Translates --bleu_source by the serial model. Returns BLEU, uncased and cased."""
        uncased_score, cased_score = transformer_main.evaluate_and_log_bleu(
            self.predict_model,
            self.params,
            self.flags_obj.bleu_source,
            self.flags_obj.bleu_ref,
            self.flags_obj.vocab_file,
        )
        return uncased_score, cased_score

    def compile(self) -> None:
        params = self.params
        schedule = LearningRateSchedule(
            params["learning_rate"], params["hidden_size"], params["learning_rate_warmup_steps"]
        )
        optimizer = keras.optimizers.Adam(
            schedule,
            beta_1=params["optimizer_adam_beta1"],
            beta_2=params["optimizer_adam_beta2"],
            epsilon=params["optimizer_adam_epsilon"],
        )
        self.train_model.compile(
            optimizer=optimizer,
            loss=SmoothedCrossentropy(params["label_smoothing"]),
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],  # of tokens
        )

    def create_callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns this rank's callbacks: all of them only watch or write, so they are the master's."""
        callbacks: list[keras.callbacks.Callback] = []
        if tnt.is_master_rank():
            if self.flags_obj.enable_time_history:
                sentences = self.params["num_sentences"] // tnt.get_size() * tnt.get_size()
                time_callback = keras_utils.TimeHistory(
                    sentences * self.params["max_length"], self.params["num_sentences"], logdir=None
                )
                callbacks.append(time_callback)
            if self.flags_obj.enable_tensorboard:
                callbacks.append(keras.callbacks.TensorBoard(log_dir=self.flags_obj.model_dir))
            if self.flags_obj.model_dir:
                path = Path(self.flags_obj.model_dir, CHECKPOINT)
                callbacks.append(keras.callbacks.ModelCheckpoint(path, save_weights_only=True))
        return callbacks

    def load_checkpoint(self) -> int:
        """Loads the last checkpoint in --model_dir, on all ranks. Returns the epochs that it was trained for."""
        if not self.flags_obj.model_dir:
            return 0
        epoch = restore(self.train_model, self.flags_obj.model_dir, CHECKPOINT)
        if epoch and tnt.is_master_rank():
            logging.info("Going on after epoch %d", epoch)
        return epoch


def main(flags_obj: argparse.Namespace) -> dict[str, Any]:
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    # Keras says so at the end of the first epoch, since long sentences are left out and nobody knows how many.
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    tnt.init()
    return TransformerTntTask(flags_obj).train()


if __name__ == "__main__":
    try:
        main(parse_args())
    except InputError as error:
        raise SystemExit(f"transformer_tnt.py: {error}") from None
