"""How a method of an object is replaced by a hook: the only way to patch Keras, and the list of what is patched."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from . import private

# What may be replaced -> on what. All are attributes of single objects, so other models stay plain Keras, except those
# of modules, which `calls.process` replaces once a process, and `compile`.
PATCHED: dict[str, str] = {
    "fit": "the class of Keras that defines it, on one rank too",
    "evaluate": "the class of Keras that defines it, on one rank too; model whose class has its own",
    "predict": "the class of Keras that defines it, on one rank too",
    "train_on_batch": "the class of Keras that defines it, on one rank too",
    "test_on_batch": "the class of Keras that defines it, on one rank too",
    "predict_on_batch": "the class of Keras that defines it, on one rank too",
    "train_step": "model, while there is a timeline, on one rank too",
    "test_step": "model",
    "predict_step": "model",
    "compute_loss": "model whose class has its own",
    "make_train_function": "model",
    "make_test_function": "model",
    "make_predict_function": "model, while there is a timeline, on one rank too",
    "reset_metrics": "model",
    private.RESULTS: "model",
    "save": "model, while it is trained or evaluated; tf.train.Checkpoint and tf.train.CheckpointManager",
    "write": "tf.train.Checkpoint",
    "save_weights": "model, while it is trained or evaluated",
    "export": "model, while it is trained or evaluated",
    "add_loss": "layer",
    private.REGULARIZATION_LOSSES: "layer",
    private.MOMENTS: "BatchNormalization that is synchronized",
    "call": "loss, while it is called; layer, while the model is tried out",
    "build": "the losses, and the metrics, given to compile",
    "update_state": "metric",
    "reset_state": "metric",
    "result": "metric",
    private.FUNCTION: "MeanMetricWrapper, while it is updated",
    private.SYMBOLIC_BUILD: "model",
    "value_and_grad": "jax",
    "gradient": "tf.GradientTape",
    "jacobian": "tf.GradientTape",
    "batch_jacobian": "tf.GradientTape",
    "make_function_context": "tensorflow.python.eager.polymorphic_function.function_context",
    "_call_flat": "the ConcreteFunction of TensorFlow",
    "apply": "optimizer",
    "assign_add": "optimizer",
    "assign_sub": "optimizer",
    "update_step": "optimizer",
    "__init__": "keras_tuner's BaseTuner; h5py.File, on one rank too",
    "compile": "the class of Keras that defines it, after hvd.init",
    "save_model": "keras.src.saving.saving_lib, on one rank too",
    "save_weights_only": "keras.src.saving.saving_lib, on one rank too",
    "save_model_to_hdf5": "keras.src.legacy.saving.legacy_h5_format, on one rank too",
    "remove": "os, while a model is trained or evaluated",
    "unlink": "os, while a model is trained or evaluated",
    "rename": "os, while a model is trained or evaluated",
    "replace": "os, while a model is trained or evaluated",
    "rmtree": "shutil, while a model is trained or evaluated",
    "move": "shutil, while a model is trained or evaluated",
    "copy": "shutil, while a model is trained or evaluated",
    "copy2": "shutil, while a model is trained or evaluated",
    "copyfile": "shutil, while a model is trained or evaluated",
    "symlink": "os, while a model is trained or evaluated",
    "link": "os, while a model is trained or evaluated",
    "copytree": "shutil, while a model is trained or evaluated",
    "load_model": "keras.models, keras.saving and keras.src.saving.saving_api",
    "load_weights": "keras.src.saving.saving_api",
    "get_data_adapter": "keras.src.trainers.data_adapters, on one rank too",
}


def hooked(owner: Any, name: str, layer: str = "") -> bool:
    """Whether this attribute of this very object is one of our hooks, with one of this layer."""
    return layer in getattr(vars(owner).get(name), "_tarantella_layers", ())


def original(owner: Any, name: str) -> Callable[..., Any]:
    """The method of this very object, without our hooks."""
    method = getattr(owner, name)
    while hasattr(method, "_tarantella_original"):
        method = method._tarantella_original
    unhooked: Callable[..., Any] = method
    return unhooked


def hook(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], layer: str = "") -> bool:
    """Puts `make(original)` in the place of a method of this object, once a layer. True if it was put now.

    The name must be in `PATCHED`.
    """
    if name not in PATCHED:
        raise KeyError(f"{name} is not in the list of what is patched")
    if hooked(owner, name, layer):
        return False
    original = getattr(owner, name)
    replacement = functools.wraps(original)(make(original))
    replacement._tarantella_original = original  # type: ignore[attr-defined]
    replacement._tarantella_layers = {layer, *getattr(original, "_tarantella_layers", ())}  # type: ignore[attr-defined]
    setattr(owner, name, replacement)
    return True


def hook_functions(model: Any, kind: str, wrap: Callable[[Any], Any], layer: str = "") -> bool:
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

    return hook(model, f"make_{attribute}", make, layer)


def are_keras_own(owner: Any, *names: str) -> bool:
    """Whether these methods of an object are Keras's own, but for hooks."""
    return all(private.is_keras_own(original(owner, name)) for name in names)


@contextlib.contextmanager
def hooking(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], layer: str = ""
) -> Iterator[None]:
    """As `hook`, for a while."""
    before = vars(owner).get(name)
    fresh = hook(owner, name, make, layer)
    try:
        yield
    finally:
        if fresh and before is not None:
            setattr(owner, name, before)
        elif fresh:
            delattr(owner, name)
