#!/usr/bin/env python
"""Trains an image classifier on one or many processes, as a YAML file says. `-d` distributes it by Horovod's Keras API.

tarantella -n 4 -- train_horovod.py configs/cifar10_resnet.yaml -d
"""

from __future__ import annotations

import argparse
import code
import functools
import logging
import os
import socket
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from data import get_datasets
from models import get_model
from utils.callbacks import TimingCallback
from utils.config import check_loss_and_metrics, check_shapes, expand, load_config, read_pairs, to_text
from utils.device import configure_device, describe_device
from utils.errors import InputError
from utils.optimizers import get_optimizer, scale_lr

import tarantella as tnt
import tarantella.horovod.keras as hvd


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("config", nargs="?", default="configs/dummy_cnn.yaml", help="the YAML file (default: %(default)s)")
    add("-d", "--distributed", action="store_true", help="train on all ranks of the job")
    add("-v", "--verbose", action="store_true", help="log debugging messages, too")
    add("--show-config", action="store_true", help="log the command line and the whole configuration")
    add("--interactive", action="store_true", help="open a Python shell on rank 0 after training")
    # These override the YAML file.
    add("--dropout", type=float, metavar="RATE", help="the share of activations that the model drops in training")
    add("--optimizer", type=read_pairs, metavar="KEY=VALUE,...", help="name=, lr=, lr_scaling=, lr_warmup_epochs=")
    add("--batch_size", type=int, metavar="N", help="images a step, on each rank")
    add("--n_epochs", type=int, metavar="N")
    return parser.parse_args()


def init_workers(distributed: bool) -> tuple[int, int]:
    """Joins the job. Returns this process's rank and the number of ranks: 0 and 1 without `-d`."""
    if distributed:
        hvd.init()
        return hvd.rank(), hvd.size()
    if tnt.get_size() > 1:
        raise InputError(f"the job has {tnt.get_size()} ranks, and without -d each would train on its own: add -d")
    return 0, 1


def config_logging(verbose: bool) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    for chatty in ("tensorflow", "matplotlib", "PIL", "h5py"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def log_worker(rank: int, n_ranks: int, distributed: bool) -> None:
    """Logs who this worker is; on rank 0 also a warning if the ranks leave nodes of a Slurm job idle."""
    logging.info("Rank %d of %d on %s, device: %s", rank, n_ranks, socket.gethostname(), describe_device())
    allocated = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    used = hvd.cross_size() if distributed else 1
    if rank == 0 and used < allocated:
        logging.warning("Slurm has allocated %d nodes, but the ranks of this job run on %d", allocated, used)


def get_callbacks(config: dict[str, Any], lr: float, rank: int, distributed: bool) -> list[keras.callbacks.Callback]:
    """Returns the callbacks in the order in which they must run: metrics are averaged before others read them."""
    callbacks: list[keras.callbacks.Callback] = []
    warmup_epochs = config["optimizer"]["lr_warmup_epochs"]
    if distributed:
        callbacks.append(hvd.callbacks.BroadcastGlobalVariablesCallback(0))  # all ranks start with rank 0's weights
        callbacks.append(hvd.callbacks.MetricAverageCallback())
        if warmup_epochs:
            verbose = int(rank == 0)
            callbacks.append(hvd.callbacks.LearningRateWarmupCallback(lr, warmup_epochs, verbose=verbose))
    for schedule in config["training"]["lr_schedule"]:
        # As a function, since Horovod takes a number for the base of an exponential decay.
        constant = functools.partial(lambda factor, epoch: factor, schedule["multiplier"])
        callbacks.append(hvd.callbacks.LearningRateScheduleCallback(lr, **{**schedule, "multiplier": constant}))
    return callbacks


def main(args: argparse.Namespace) -> None:
    rank, n_ranks = init_workers(args.distributed)
    config_logging(args.verbose)
    config = load_config(args)
    configure_device(**config["device"])
    keras.utils.set_random_seed(config["seed"] + rank)  # each rank shuffles and augments on its own
    log_worker(rank, n_ranks, args.distributed)

    output_dir = Path(expand(config["output_dir"], n_ranks))
    if rank == 0:
        if args.show_config:
            logging.info("Command line: %s\nConfiguration:\n%s", vars(args), to_text(config))
        logging.info("%s: writing to %s", config["description"], output_dir)
        try:
            (output_dir / "checkpoints").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{args.config}: cannot make the folder {output_dir}: {error.strerror}") from None

    training = config["training"]
    datasets = get_datasets(**config["data"], batch_size=training["batch_size"], rank=rank, n_ranks=n_ranks)
    check_shapes(config["model"], datasets)
    check_loss_and_metrics(training, datasets.n_classes)
    model = get_model(**config["model"])
    lr = scale_lr(config["optimizer"]["lr"], config["optimizer"]["lr_scaling"], n_ranks)
    optimizer = get_optimizer(config["optimizer"], lr, args.distributed)
    model.compile(optimizer=optimizer, loss=training["loss"], metrics=training["metrics"])

    callbacks = get_callbacks(config, lr, rank, args.distributed)
    timing = TimingCallback()
    callbacks.append(timing)
    if rank == 0:
        model.summary()
        callbacks.append(keras.callbacks.ModelCheckpoint(output_dir / "checkpoints" / "checkpoint-{epoch}.keras"))

    history = model.fit(
        datasets.train,
        steps_per_epoch=datasets.steps_per_epoch,
        epochs=training["n_epochs"],
        validation_data=datasets.valid,
        callbacks=callbacks,
        shuffle=False,  # the data sets shuffle
        verbose=2 if rank == 0 else 0,
    ).history

    if rank == 0:
        np.savez(output_dir / "history.npz", n_ranks=n_ranks, epoch_seconds=timing.times, **history)
        logging.info("Mean time of an epoch: %.2f s", np.mean(timing.times))
        if top5 := history.get("val_top_k_categorical_accuracy"):
            logging.info("Best top-5 validation accuracy: %.4f", max(top5))
        if accuracy := history.get("val_accuracy"):
            best = int(np.argmax(accuracy))
            logging.info("Best validation accuracy: %.4f in epoch %d", accuracy[best], best + 1)
        if args.interactive:
            code.interact("`model`, `history` and `datasets` are here; Ctrl-D ends.", local=locals(), exitmsg="")


if __name__ == "__main__":
    try:
        main(parse_args())
    except InputError as error:
        raise SystemExit(f"train_horovod.py: {error}") from None
