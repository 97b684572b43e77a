"""The configuration of a run: a YAML file, changed by the command line, and checked before anything starts."""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import keras
import yaml
from data import DATASETS, Datasets
from models import MODELS

from .device import configure_device
from .errors import ConfigError
from .optimizers import OPTIMIZERS, SCALINGS

Config = dict[str, Any]

# Outside of a Slurm job these have values, too.
OUTSIDE_SLURM = {"SCRATCH": "results", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "local"}
SECTIONS = ("description", "output_dir", "seed", "data", "model", "optimizer", "training", "device")
TRAINING = ("batch_size", "n_epochs", "lr_warmup_epochs", "loss", "metrics", "lr_schedule")
SCHEDULE = ("multiplier", "start_epoch", "end_epoch", "momentum_correction")
OVERRIDES = ("name", "lr", "lr_scaling", "lr_warmup_epochs")


def known(what: str, given: str, names: Collection[str]) -> str:
    """Returns the one of `names` that equals `given` in any case. Raises ConfigError with the nearest one."""
    by_lower = {name.lower(): name for name in names}
    if str(given).lower() in by_lower:
        return by_lower[str(given).lower()]
    near = difflib.get_close_matches(str(given).lower(), by_lower, n=1)
    guess = f"did you mean '{by_lower[near[0]]}'? " if near else ""
    raise ConfigError(f"{what} '{given}' is unknown; {guess}Known: {', '.join(sorted(names))}")


def read_pairs(text: str) -> dict[str, str]:
    """Reads "name=Adam,lr=0.001", the value of `--optimizer`."""
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        return {known("the key", key.strip(), OVERRIDES): value.strip() for key, _, value in pairs}
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def load_config(args: argparse.Namespace) -> Config:
    """Reads `args.config`, applies the other arguments, and checks everything that needs no data.

    Returns all sections, with the defaults filled in. Raises ConfigError.
    """
    config = read_yaml(Path(args.config))
    try:
        check_keys("", config, SECTIONS, required=("output_dir", "data", "model", "optimizer", "training"))
        for section in ("data", "model", "optimizer", "training", "device"):
            config[section] = mapping(section, config.get(section) or {})
        override(config, args)
        config.setdefault("description", Path(args.config).stem)
        config["seed"] = whole("seed", config.get("seed", 42), least=0)
        check_data_and_model(config)
        check_training(config["training"])
        check_optimizer(config["optimizer"], config["training"])
        check_keys("device", config["device"], parameters(configure_device))
        expand(config["output_dir"], n_ranks=1)
        if config["data"].get("data_dir") is not None:
            config["data"]["data_dir"] = expand(config["data"]["data_dir"], n_ranks=1)
    except ConfigError as error:
        raise ConfigError(f"{args.config}: {error}") from None
    return config


def read_yaml(path: Path) -> Config:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path} is not a mapping of the sections {', '.join(SECTIONS)}")
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
        needed = [name for name, default in accepted.items() if default is inspect.Parameter.empty]
        check_keys(section, options, ("name", *accepted), required=needed)
    shape = config["model"].get("input_shape", [1, 1, 1])
    if not (isinstance(shape, list) and len(shape) == 3 and all(isinstance(n, int) and n > 0 for n in shape)):
        raise ConfigError(f"model.input_shape must be [height, width, channels] (got {shape})")
    dropout = number("model.dropout", config["model"].get("dropout", 0.0), least=0)
    if dropout >= 1:
        raise ConfigError(f"model.dropout must be below 1 (got {dropout:g})")


def check_training(training: dict[str, Any]) -> None:
    check_keys("training", training, TRAINING, required=("batch_size", "n_epochs", "loss"))
    for key in ("batch_size", "n_epochs"):
        training[key] = whole(f"training.{key}", training[key], least=1)
    check_name("training.loss", training["loss"], keras.losses)
    training["metrics"] = as_list("training.metrics", training.get("metrics"))
    for metric in training["metrics"]:
        if metric not in ("accuracy", "acc"):
            check_name("training.metrics", metric, keras.metrics)
    training["lr_schedule"] = as_list("training.lr_schedule", training.get("lr_schedule"))
    for number_of, schedule in enumerate(training["lr_schedule"], 1):
        where = f"training.lr_schedule, entry {number_of}"
        check_keys(where, mapping(where, schedule), SCHEDULE, required=("multiplier",))
        schedule["multiplier"] = number(f"{where}: multiplier", schedule["multiplier"], least=0)
        for key in ("start_epoch", "end_epoch"):
            if schedule.get(key) is not None:
                schedule[key] = whole(f"{where}: {key}", schedule[key], least=0)


def check_optimizer(optimizer: dict[str, Any], training: dict[str, Any]) -> None:
    require("optimizer", optimizer, ("name", "lr"))
    optimizer["name"] = known("optimizer.name", optimizer["name"], OPTIMIZERS)
    keras_arguments = [key for key in parameters(OPTIMIZERS[optimizer["name"]]) if key != "learning_rate"]
    check_keys("optimizer", optimizer, (*OVERRIDES, *keras_arguments))
    optimizer["lr"] = number("optimizer.lr", optimizer["lr"], least=0)
    scaling = optimizer.get("lr_scaling")
    optimizer["lr_scaling"] = known("optimizer.lr_scaling", "none" if scaling is None else scaling, SCALINGS)
    if "lr_warmup_epochs" in optimizer and "lr_warmup_epochs" in training:
        raise ConfigError("lr_warmup_epochs is in both sections, optimizer and training: leave one")
    warmup = optimizer.get("lr_warmup_epochs", training.pop("lr_warmup_epochs", 0))
    optimizer["lr_warmup_epochs"] = whole("optimizer.lr_warmup_epochs", warmup, least=0)


def check_shapes(model: dict[str, Any], datasets: Datasets) -> None:
    """Compares the data with what the section `model` says, and completes it from the data. Raises ConfigError."""
    shape = model.setdefault("input_shape", list(datasets.image_shape))
    if tuple(shape) != datasets.image_shape:
        raise ConfigError(f"model.input_shape is {shape}, but the images are of shape {list(datasets.image_shape)}")
    classes = model.setdefault("n_classes", datasets.n_classes)
    if classes != datasets.n_classes:
        raise ConfigError(f"model.n_classes is {classes}, but the data has {datasets.n_classes} classes")


def expand(text: Any, n_ranks: int) -> str:
    """Replaces environment variables and `$N_RANKS` in a path. Raises ConfigError if one is not set."""
    values = {**OUTSIDE_SLURM, **os.environ, "N_RANKS": str(n_ranks)}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in values:
            raise ConfigError(f"the environment variable {name} in '{text}' is not set")
        return values[name]

    return os.path.expanduser(re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, str(text)))


def to_text(config: Config) -> str:
    return yaml.safe_dump(config, sort_keys=False).rstrip()


# The pieces of the checks.


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the parameters that a configuration may set, with their defaults. The script sets the others."""
    others = ("batch_size", "rank", "n_ranks", "kwargs")
    return {
        each.name: each.default for each in inspect.signature(function).parameters.values() if each.name not in others
    }


def require(where: str, given: Mapping[str, Any], keys: Collection[str]) -> None:
    for key in keys:
        if given.get(key) is None:
            raise ConfigError(f"{f'{where}: ' if where else ''}the key '{key}' is missing")


def check_keys(where: str, given: Mapping[str, Any], keys: Collection[str], required: Collection[str] = ()) -> None:
    for key in given:
        if key not in keys:
            known(f"{f'{where}: ' if where else ''}the key", key, keys)
            raise ConfigError(f"{where}: write the key '{key}' in lower case")
    require(where, given, required)


def check_name(where: str, name: Any, module: Any) -> None:
    """Accepts what `module.get` knows: a class by its name, or a function."""
    try:
        module.get(name)
    except (ValueError, TypeError):
        known(where, name, [each for each in dir(module) if not each.startswith("_")])


def mapping(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a mapping (got {value!r})")
    return value


def as_list(where: str, value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise ConfigError(f"{where} must be a list (got {value!r})")
    return value or []


def number(where: str, value: Any, least: float) -> float:
    """Also takes text: YAML reads 1e-4 as text, and 1.0e-4 as a number."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{where} must be a number (got {value!r})") from None
    if not least <= result < float("inf"):
        raise ConfigError(f"{where} must be at least {least} (got {value})")
    return result


def whole(where: str, value: Any, least: int) -> int:
    result = number(where, value, least)
    if result != int(result) or isinstance(value, bool):
        raise ConfigError(f"{where} must be a whole number (got {value})")
    return int(result)
