"""The configuration of a run: a YAML file, changed by the command line, and checked before anything starts."""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import yaml
from data import DATASETS, Datasets
from models import MODELS

from .checks import (
    as_list,
    check_keys,
    image_shape,
    known,
    known_to_keras,
    mapping,
    number,
    require,
    text,
    truth,
    whole,
)
from .device import configure_device
from .errors import InputError, refused
from .optimizers import OPTIMIZERS, SCALINGS

Config = dict[str, Any]

# Outside of a Slurm job these have values, too.
OUTSIDE_SLURM = {"SCRATCH": "results", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "local"}
SECTIONS = ("description", "output_dir", "seed", "data", "model", "optimizer", "training", "device")
TRAINING = ("batch_size", "n_epochs", "lr_warmup_epochs", "loss", "metrics", "lr_schedule")
SCHEDULE = ("multiplier", "start_epoch", "end_epoch", "momentum_correction")
OVERRIDES = ("name", "lr", "lr_scaling", "lr_warmup_epochs")
ACCURACY = ("accuracy", "acc")  # Keras chooses the one that fits the labels
MOST_THREADS = 4096

# The checks of values, by the type of the parameter that takes them.
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "int": whole,
    "float": functools.partial(number, least=0),
    "bool": truth,
    "str": text,
    "Sequence[int]": image_shape,
}


def read_pairs(words: str) -> dict[str, str]:
    """Reads "name=Adam,lr=0.001", the value of `--optimizer`."""
    pairs = [part.partition("=") for part in words.split(",")]
    try:
        return {known("the key", key.strip(), OVERRIDES): value.strip() for key, _, value in pairs}
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def load_config(args: argparse.Namespace) -> Config:
    """Reads `args.config`, applies the other arguments, and checks everything that needs no data.

    Returns all sections, with the defaults filled in. Raises InputError.
    """
    config = read_yaml(Path(args.config))
    try:
        check_keys("", config, SECTIONS, required=("output_dir", "data", "model", "optimizer", "training"))
        for section in ("data", "model", "optimizer", "training", "device"):
            config[section] = mapping(section, config.get(section) or {})
        override(config, args)
        config["description"] = text("description", config.get("description", Path(args.config).stem))
        config["seed"] = whole("seed", config.get("seed", 42), least=0)
        check_data_and_model(config)
        check_training(config["training"])
        check_optimizer(config["optimizer"], config["training"])
        check_keys("device", config["device"], parameters(configure_device))
        config["device"] = {
            key: whole(f"device.{key}", value, least=0, most=MOST_THREADS)
            for key, value in config["device"].items()
            if value is not None
        }
        if set(expand(text("output_dir", config["output_dir"]), n_ranks=1)) & set("{}"):
            raise InputError(f"output_dir: write variables as ${{N_RANKS}} (got '{config['output_dir']}')")
        if config["data"].get("data_dir") is not None:
            config["data"]["data_dir"] = expand(config["data"]["data_dir"], n_ranks=1)
    except InputError as error:
        raise InputError(f"{args.config}: {error}") from None
    return config


def read_yaml(path: Path) -> Config:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: bytes that are no text, and impossible dates
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a mapping of the sections {', '.join(SECTIONS)}")
    return config


def override(config: Config, args: argparse.Namespace) -> None:
    """Puts the options of the command line into `config`."""
    given = {
        "model": {"dropout": args.dropout},
        "training": {"batch_size": args.batch_size, "n_epochs": args.n_epochs},
        "optimizer": args.optimizer or {},
    }
    for section, values in given.items():
        config[section] |= {key: value for key, value in values.items() if value is not None}
    if "lr_warmup_epochs" in given["optimizer"]:
        config["training"].pop("lr_warmup_epochs", None)


def check_data_and_model(config: Config) -> None:
    for section, registry in (("data", DATASETS), ("model", MODELS)):
        options = config[section]
        require(section, options, ("name",))
        options["name"] = known(f"{section}.name", options["name"], registry)
        accepted = parameters(registry[options["name"]])
        needed = [name for name, each in accepted.items() if each.default is inspect.Parameter.empty]
        check_keys(section, options, ("name", *accepted), required=needed)
        for key in [each for each in options if each in accepted]:
            kind = accepted[key].annotation.removesuffix(" | None")
            if options[key] is not None or kind == accepted[key].annotation:
                options[key] = CHECKS[kind](f"{section}.{key}", options[key])
    if config["model"].get("dropout", 0) >= 1:
        raise InputError(f"model.dropout must be below 1 (got {config['model']['dropout']:g})")


def check_training(training: dict[str, Any]) -> None:
    check_keys("training", training, TRAINING, required=("batch_size", "n_epochs", "loss"))
    for key in ("batch_size", "n_epochs"):
        training[key] = whole(f"training.{key}", training[key])
    training["loss"] = known_to_keras("training.loss", training["loss"], keras.losses)
    metrics = as_list("training.metrics", training.get("metrics"), "[accuracy]")
    training["metrics"] = [known_to_keras("training.metrics", each, keras.metrics, ACCURACY) for each in metrics]
    where = "training.lr_schedule"
    training["lr_schedule"] = as_list(where, training.get("lr_schedule"), "[{start_epoch: 30, multiplier: 0.1}]")
    for place, schedule in enumerate(training["lr_schedule"], 1):
        check_schedule(f"{where}, entry {place}", schedule)


def check_schedule(where: str, schedule: Any) -> None:
    check_keys(where, mapping(where, schedule), SCHEDULE, required=("multiplier",))
    schedule["multiplier"] = number(f"{where}: multiplier", schedule["multiplier"], least=0)
    for key in [each for each in ("start_epoch", "end_epoch") if each in schedule]:
        if schedule[key] is None:
            del schedule[key]
        else:
            schedule[key] = whole(f"{where}: {key}", schedule[key], least=0)
    start, end = schedule.get("start_epoch", 0), schedule.get("end_epoch")
    if end is not None and end <= start:
        raise InputError(f"{where}: end_epoch must be above start_epoch, {start} (got {end})")
    if "momentum_correction" in schedule:
        truth(f"{where}: momentum_correction", schedule["momentum_correction"])


def check_optimizer(optimizer: dict[str, Any], training: dict[str, Any]) -> None:
    require("optimizer", optimizer, ("name", "lr"))
    optimizer["name"] = known("optimizer.name", optimizer["name"], OPTIMIZERS)
    accepted = parameters(OPTIMIZERS[optimizer["name"]])
    del accepted["learning_rate"]
    check_keys("optimizer", optimizer, (*OVERRIDES, *accepted))
    for key in [each for each in optimizer if each not in OVERRIDES]:
        default = accepted[key].default
        if isinstance(default, bool):
            truth(f"optimizer.{key}", optimizer[key])
        elif default is not None or isinstance(optimizer[key], (bool, str)):
            optimizer[key] = number(f"optimizer.{key}", optimizer[key])
    optimizer["lr"] = float(number("optimizer.lr", optimizer["lr"], least=0))
    scaling = optimizer.get("lr_scaling")
    optimizer["lr_scaling"] = known("optimizer.lr_scaling", "linear" if scaling is None else scaling, SCALINGS)
    if "lr_warmup_epochs" in optimizer and "lr_warmup_epochs" in training:
        raise InputError("lr_warmup_epochs is in both sections, optimizer and training: leave one")
    warmup = optimizer.get("lr_warmup_epochs", training.pop("lr_warmup_epochs", 0))
    optimizer["lr_warmup_epochs"] = whole("optimizer.lr_warmup_epochs", warmup, least=0)


def check_shapes(model: dict[str, Any], datasets: Datasets) -> None:
    """Compares the data with what the section `model` says, and completes it from the data. Raises InputError."""
    shape = model.setdefault("input_shape", list(datasets.image_shape))
    if tuple(shape) != datasets.image_shape:
        raise InputError(f"model.input_shape is {shape}, but the images are of shape {list(datasets.image_shape)}")
    classes = model.setdefault("n_classes", datasets.n_classes)
    if classes != datasets.n_classes:
        raise InputError(f"model.n_classes is {classes}, but the data has {datasets.n_classes} classes")


def check_loss_and_metrics(training: dict[str, Any], n_classes: int) -> None:
    """Tries them on the labels of two images. Raises InputError for what cannot be computed of one-hot labels."""
    labels = np.eye(n_classes, dtype="float32")[[0, -1]]
    with refused("training.loss, for one-hot labels", training["loss"]):
        keras.losses.get(training["loss"])(labels, labels)
    for name in (each for each in training["metrics"] if each not in ACCURACY):
        metric = keras.metrics.get(name)
        with refused("training.metrics, for one-hot labels", name):
            (metric.update_state if isinstance(metric, keras.metrics.Metric) else metric)(labels, labels)


def expand(path: str, n_ranks: int) -> str:
    """Replaces environment variables and `$N_RANKS` in a path. Raises InputError if one is not set."""
    values = {**OUTSIDE_SLURM, **os.environ, "N_RANKS": str(n_ranks)}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in values:
            raise InputError(f"the environment variable {name} in '{path}' is not set")
        return values[name]

    return os.path.expanduser(re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, path))


def to_text(config: Config) -> str:
    return yaml.safe_dump(config, sort_keys=False).rstrip()


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters that a configuration may set. The script sets the others."""
    others = ("batch_size", "rank", "n_ranks", "kwargs")
    return {name: each for name, each in inspect.signature(function).parameters.items() if name not in others}
