"""Hooks: the only way to patch Keras, with the list of all patched names.

`check_keras` verifies that this Keras has the private names that several ranks need.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from .._job import log
from . import private

# Where -> the attributes that may be replaced there: in every job, or on several ranks only. Models, layers, losses,
# metrics and optimizers are patched one by one, so others stay plain Keras. `fit.install` patches classes and
# modules, once a process.
_ANY_SIZE = {
    "the class of Keras that defines it": ("fit", "evaluate", "predict"),
    "the class of Keras that defines it, for single batches": ("train_on_batch", "test_on_batch", "predict_on_batch"),
    "model, while there is a timeline": ("train_step", "make_predict_function"),
    "keras.src.saving.saving_lib": ("save_model", "save_weights_only"),
    "keras.src.legacy.saving.legacy_h5_format": ("save_model_to_hdf5",),
    "keras.src.trainers.data_adapters": ("get_data_adapter",),
    "h5py.File": ("__init__",),
}
_SEVERAL_RANKS = {
    "model": ("train_step", "test_step", "predict_step", "reset_metrics", private.METRICS_RESULT),
    "model, to hook what they make": ("make_train_function", "make_test_function"),
    "model whose class has its own": ("evaluate", "compute_loss"),
    "model, while it is trained or evaluated": ("save", "save_weights", "export"),
    "layer": ("add_loss", private.REGULARIZATION_LOSSES),
    "layer, while the model is tried out; loss, while it is called": ("call",),
    "BatchNormalization that is synchronized": (private.MOMENTS,),
    "model, on JAX": (private.SYMBOLIC_BUILD,),
    "jax": ("value_and_grad",),
    "the losses, and the metrics, given to compile": ("build",),
    "metric": ("update_state", "reset_state", "result"),
    "MeanMetricWrapper, while it is updated": (private.FUNCTION,),
    "optimizer": ("apply", "assign_add", "assign_sub", "update_step"),
    "tf.GradientTape": ("gradient", "jacobian", "batch_jacobian"),
    "tensorflow.python.eager.polymorphic_function.function_context": ("make_function_context",),
    "the ConcreteFunction of TensorFlow": ("_call_flat",),
    "tf.train.Checkpoint": ("save", "write"),
    "tf.train.CheckpointManager": ("save",),
    "os, while a model is trained or evaluated": ("remove", "unlink", "rename", "replace", "symlink", "link"),
    "shutil, while a model is trained or evaluated": ("rmtree", "move", "copy", "copy2", "copyfile", "copytree"),
    "keras.models, keras.saving and keras.src.saving.saving_api": ("load_model",),
    "keras.src.saving.saving_api": ("load_weights",),
    "keras_tuner's BaseTuner": ("__init__",),
    "the class of Keras that defines it, after hvd.init": ("compile",),
}
PATCHED = frozenset(name for where in (_ANY_SIZE, _SEVERAL_RANKS) for names in where.values() for name in names)


def original(owner: Any, name: str) -> Callable[..., Any]:
    """The method of this very object, without our hooks."""
    method = getattr(owner, name)
    while hasattr(method, "_tarantella_original"):
        method = method._tarantella_original
    unhooked: Callable[..., Any] = method
    return unhooked


def hook(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], tag: str = "") -> bool:
    """Puts `make(original)` in the place of a method of this object, once for each tag. True if it was put now.

    The name must be in `PATCHED`.
    """
    if name not in PATCHED:
        raise KeyError(f"{name} is not in the list of what is patched")
    if tag in getattr(vars(owner).get(name), "_tarantella_tags", ()):
        return False
    original = getattr(owner, name)
    replacement = functools.wraps(original)(make(original))
    replacement._tarantella_original = original  # type: ignore[attr-defined]
    replacement._tarantella_tags = {tag, *getattr(original, "_tarantella_tags", ())}  # type: ignore[attr-defined]
    setattr(owner, name, replacement)
    return True


def hook_functions(model: Any, kind: str, wrap: Callable[[Any], Any], tag: str = "") -> bool:
    """Puts `wrap(function)` in the place of each function that `make_<kind>_function` makes. Returns as `hook` does."""
    attribute = f"{kind}_function"

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_function(force: bool = False) -> Any:
            before = getattr(model, attribute)
            original(force)
            made = getattr(model, attribute)
            if made is not before and made is not None:
                setattr(model, attribute, wrap(made))
            return getattr(model, attribute)

        return make_function

    return hook(model, f"make_{attribute}", make, tag)


def are_keras_own(owner: Any, *names: str) -> bool:
    """Whether these methods, without our hooks, are Keras's: not replaced on the object or its class."""
    codes = [getattr(original(owner, name), "__code__", None) for name in names]
    folder = Path(keras.__file__).parent
    return all(code is not None and Path(code.co_filename).is_relative_to(folder) for code in codes)


@contextlib.contextmanager
def hooking(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], tag: str = ""
) -> Iterator[None]:
    """As `hook`, for a while."""
    before = vars(owner).get(name)
    fresh = hook(owner, name, make, tag)
    try:
        yield
    finally:
        if fresh and before is not None:
            setattr(owner, name, before)
        elif fresh:
            delattr(owner, name)


@contextlib.contextmanager
def setting(owner: Any, **values: Any) -> Iterator[None]:
    """Gives attributes of this object other values for a while."""
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextlib.contextmanager
def collecting(owner: Any, name: str) -> Iterator[list[Any]]:
    """Collects what a method of this object returns, for a while."""
    results: list[Any] = []

    def collected(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            results.append(original(*args, **kwargs))
            return results[-1]

        return call

    with hooking(owner, name, collected):
        yield results


@functools.cache
def check_keras() -> None:
    """Raises NotImplementedError where a private name is missing; a WARNING names a Keras newer than those tested.

    Once a process. Milliseconds; no rank waits.
    """
    try:
        owners = _samples()
    except AttributeError as missing:
        raise _refusal(str(missing)) from missing
    for owner, names in private.NAMES.items():
        for name in names:
            if not any(hasattr(owners[owner], each) for each in name.split(" or ")):
                raise _refusal(f"no {name} of {owner}")
    newest = tuple(map(int, private.KNOWN.rpartition(" ")[2].split(".")))
    if private.version() > newest:
        log.warn_once(
            f"Keras {keras.__version__} is newer than the tested versions ({private.KNOWN}); to compare your script "
            "with one process, run it with tarantella verify"
        )


def _refusal(reason: str) -> NotImplementedError:
    return NotImplementedError(
        f"Keras {keras.__version__} is not supported on several ranks ({reason}): they would not train as one process "
        f"does; install a tested version: {private.KNOWN}"
    )


def _samples() -> dict[str, Any]:
    """The owners of `private.NAMES`. Objects have names: automatic ones are counted."""
    metric = keras.metrics.MeanMetricWrapper(keras.losses.mean_squared_error, name="names")
    model = keras.Sequential([keras.Input((1,), name="names")], name="names")
    model.compile(keras.optimizers.SGD(name="names"), keras.losses.MeanSquaredError(name="names"), metrics=[metric])
    losses = private.compiled_losses(model)
    losses.build(np.zeros((1, 1)), np.zeros((1, 1)))  # Keras 3.5 and 3.6 have no list of losses before
    return {
        "Model": model,
        "Layer": model,
        "BatchNormalization": keras.layers.BatchNormalization(name="names"),
        "CompileLoss": losses,
        "CompileMetrics": private.compiled_parts(model)[1],
        "MeanMetricWrapper": metric,
        "Optimizer": model.optimizer,
        "ModelCheckpoint": keras.callbacks.ModelCheckpoint("names.keras", save_freq=2),
        "ArrayDataAdapter": private.ArrayDataAdapter(np.zeros((2, 1)), batch_size=1),
        **{owner: getattr(private, owner) for owner in private.NAMES if owner.islower()},
    }
