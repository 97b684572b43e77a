"""`tarantella.Model`: a Keras model whose fit, evaluate and predict run on all ranks."""

from __future__ import annotations

from typing import Any

import keras

from .._backend import load as load_backend
from .._job import runtime
from .._job.environment import prints_output
from ..compat import ParallelStrategy, check_strategy, to_yaml
from . import call_data, files, fit, patches
from .wrapper import Wrapper, merged_signature


class Model(Wrapper):
    """Wraps a Keras model, so that its `fit`, `evaluate` and `predict` run on all ranks.

    Batches are global: each rank trains on its share of every one, and weights, losses, metrics and predictions are
    those of one process. With one rank all calls go straight to Keras. Attributes that are not defined here are read
    from the Keras model and written to it.

    Args:
        model: A Keras 3 model. A `tarantella.Model` may be wrapped again: both wrap the same Keras model.
        parallel_strategy: `ParallelStrategy.DATA`, the only one so far.

    Raises:
        TypeError: `model` is no Keras 3 model.
        NotImplementedError: The strategy or Keras's backend is not available yet, or, on several ranks, this Keras
            lacks names that they need.

    Constructing one joins the job (see `tarantella.init`), which blocks until all ranks have joined.

    Example:
        >>> import keras, numpy as np, tarantella as tnt
        >>> model = tnt.Model(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=4, epochs=2, verbose=0)
        >>> len(history.history["loss"])
        2
    """

    def __init__(self, model: Any, parallel_strategy: ParallelStrategy = ParallelStrategy.DATA) -> None:
        super().__init__(model, check_strategy(parallel_strategy))
        runtime.init()
        if runtime.get_size() > 1:
            load_backend()
            patches.check_strategy(self._tarantella_model)
        fit.install()

    def __reduce__(self) -> tuple[Any, ...]:
        return Model, (self._tarantella_model, self._tarantella_strategy)

    def fit(
        self,
        *args: Any,
        tnt_micro_batch_size: int | None = None,
        tnt_validation_micro_batch_size: int | None = None,
        tnt_distribute_dataset: bool = True,
        tnt_distribute_validation_dataset: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Trains as `keras.Model.fit` does, with its arguments; `batch_size` and the batches of datasets are global.

        Call it on all ranks with the same arguments: it blocks until all of them train. It starts from the master's
        weights. A `fit` of the model's own class runs as written, with its own arguments; the ranks share the work
        where it calls Keras's. So it is for `evaluate`, `predict` and the methods for single batches.

        Args:
            *args: As for `keras.Model.fit`.
            tnt_micro_batch_size: The number of rows per rank. Arrays, and datasets without batches, are batched by it
                times the number of ranks. If there is a global batch size too, it must be equal to that product.
            tnt_validation_micro_batch_size: The same for validation data.
            tnt_distribute_dataset: If False, `x` is the data of this rank alone, in micro batches. An epoch then ends
                when no rank has data left.
            tnt_distribute_validation_dataset: The same for validation data.
            **kwargs: As for `keras.Model.fit`.

        Returns:
            Keras's History, whose epochs hold global numbers on every rank. After a single batch, callbacks see the
            numbers of their own rank. `tarantella.keras.callbacks.Callback` changes this, and says which ranks write.

        Raises:
            ValueError, TypeError: An argument is invalid.
            tarantella.Error: Ranks disagree (MismatchError) or are lost (PeerLostError).
        """
        return self._call(
            "fit",
            args,
            kwargs,
            micro_batch_size=tnt_micro_batch_size,
            distribute=tnt_distribute_dataset,
            validation_micro_batch_size=tnt_validation_micro_batch_size,
            distribute_validation=tnt_distribute_validation_dataset,
        )

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], **ours: Any) -> Any:
        return patches.call(self._tarantella_model, name, args, kwargs, **ours)

    def evaluate(
        self, *args: Any, tnt_micro_batch_size: int | None = None, tnt_distribute_dataset: bool = True, **kwargs: Any
    ) -> Any:
        """Evaluates as `keras.Model.evaluate` does, each rank its share.

        Blocks until all ranks have called it. Starts from the master's weights.

        Args:
            *args: As for `keras.Model.evaluate`.
            tnt_micro_batch_size: As for `fit`.
            tnt_distribute_dataset: As for `fit`.
            **kwargs: As for `keras.Model.evaluate`.

        Returns:
            What Keras returns: the global loss and metrics, on every rank.

        Raises:
            ValueError: As `fit`, and its other errors.
        """
        ours = {"micro_batch_size": tnt_micro_batch_size, "distribute": tnt_distribute_dataset}
        return self._call("evaluate", args, kwargs, **ours)

    def predict(
        self,
        *args: Any,
        tnt_micro_batch_size: int | None = None,
        tnt_distribute_dataset: bool = True,
        tnt_predict_all_ranks: bool | None = None,
        tnt_predict_all_devices: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Predicts as `keras.Model.predict` does, each rank its share.

        Blocks until all ranks have called it. Starts from the master's weights.

        Args:
            *args: As for `keras.Model.predict`.
            tnt_micro_batch_size: As for `fit`.
            tnt_distribute_dataset: If False, this rank alone predicts its own `x`, with its own weights.
            tnt_predict_all_ranks: If False, only the master gets the predictions. The others get None, and keep no
                more than their share. Default: True.
            tnt_predict_all_devices: The older name of `tnt_predict_all_ranks`.
            **kwargs: As for `keras.Model.predict`.

        Returns:
            Arrays of shape (rows of x, …) in the order of the data, on every rank.

        Raises:
            ValueError: As `fit`, and its other errors.
        """
        ours = {"micro_batch_size": tnt_micro_batch_size, "distribute": tnt_distribute_dataset}
        everywhere = call_data.on_all_ranks("predict", tnt_predict_all_ranks, tnt_predict_all_devices, default=True)
        return self._call("predict", args, kwargs, **ours, everywhere=everywhere)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Trains on one global batch as `keras.Model.train_on_batch` does, each rank on its rows.

        Call it on all ranks with the same batch; blocks until all have. The first call since the model was compiled
        starts from the master's weights. Later, set weights on all ranks.

        Args:
            *args: As for `keras.Model.train_on_batch`.
            **kwargs: As for `keras.Model.train_on_batch`.

        Returns:
            What Keras returns: the global loss and metrics, on every rank.

        Raises:
            ValueError: As `fit`, and its other errors.
        """
        return self._call("train_on_batch", args, kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates one global batch as `keras.Model.test_on_batch` does, from the master's weights.

        Call it on all ranks with the same batch; blocks until all have. Results and errors as for `train_on_batch`.
        """
        return self._call("test_on_batch", args, kwargs)

    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts one global batch as `keras.Model.predict_on_batch` does; otherwise as `test_on_batch`."""
        return self._call("predict_on_batch", args, kwargs)

    def save(
        self,
        filepath: Any,
        *args: Any,
        tnt_save_all_ranks: bool | None = None,
        tnt_save_all_devices: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Saves the Keras model as `keras.Model.save` does, on the master only. The file is replaced as a whole.

        If all ranks call this, they return when every rank can load the file. The others wait for the master. The
        master waits for nobody, so it may also save alone. After it has saved a path alone, let all ranks meet before
        they save the same path together: otherwise the others may return while the older file is there. They meet in
        `tnt.barrier()`, `fit`, `evaluate` and `predict`.

        Args:
            filepath: As for `keras.Model.save`.
            *args: As for `keras.Model.save`.
            tnt_save_all_ranks: If True, each rank that calls this writes its own file. Default: False.
            tnt_save_all_devices: The older name of `tnt_save_all_ranks`.
            **kwargs: As for `keras.Model.save`.

        Raises:
            OSError: The file cannot be written; or another of Keras's errors, on the rank that writes.
            tarantella.Error: The master could not write, on the other ranks.
        """
        everywhere = call_data.on_all_ranks("save", tnt_save_all_ranks, tnt_save_all_devices, default=False)
        return files.write(self._tarantella_model, "save", filepath, args, kwargs, everywhere)

    def save_weights(
        self,
        filepath: Any,
        *args: Any,
        tnt_save_all_ranks: bool | None = None,
        tnt_save_all_devices: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Saves the weights; as `save`."""
        everywhere = call_data.on_all_ranks("save", tnt_save_all_ranks, tnt_save_all_devices, default=False)
        return files.write(self._tarantella_model, "save_weights", filepath, args, kwargs, everywhere)

    def export(
        self,
        filepath: Any,
        *args: Any,
        tnt_save_all_ranks: bool | None = None,
        tnt_save_all_devices: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Exports the model; as `save`, but the folder is written in place."""
        everywhere = call_data.on_all_ranks("save", tnt_save_all_ranks, tnt_save_all_devices, default=False)
        return files.write(self._tarantella_model, "export", filepath, args, kwargs, everywhere)

    def load_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        """Loads weights as Keras does, on this rank. The next call starts from the master's, except `train_on_batch`.

        Where ranks differ in moving statistics alone after `train_on_batch`, it starts from their mean.
        """
        return self._tarantella_model.load_weights(files.existing(filepath, "save_weights"), *args, **kwargs)

    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Prints Keras's summary, on the master only, or calls the `print_fn` that is given on every rank."""
        if prints_output() or "print_fn" in kwargs:
            self._tarantella_model.summary(*args, **kwargs)

    def to_yaml(self, **kwargs: Any) -> str:
        """The output of `to_json` as YAML, for `tarantella.models.model_from_yaml`.

        Args:
            **kwargs: As for `yaml.safe_dump`.

        Raises:
            ImportError: PyYAML is not installed.
        """
        return to_yaml(self._tarantella_model, **kwargs)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Model:
        """A new model of the layers that `get_config` describes: see `tarantella.models.model_from_config`."""
        if not isinstance(config, dict) or not {"layers", "class_name"} & set(config):
            raise ValueError(
                f"model_from_config needs what get_config of a functional or Sequential model gives (got {config!r:.80}"
                "); use from_config of your own class for a subclassed model"
            )
        with keras.saving.custom_object_scope(custom_objects or {}):
            if "class_name" in config:
                return Model(keras.saving.deserialize_keras_object(config))
            kind = keras.Model if "input_layers" in config else keras.Sequential
            return Model(kind.from_config(config))


for _name in patches.METHODS:
    getattr(Model, _name).__signature__ = merged_signature(getattr(keras.Model, _name), getattr(Model, _name))


class Sequential(Model):
    """`tarantella.Model(keras.Sequential(layers))`, in one.

    Args:
        layers: As for `keras.Sequential`.
        trainable: As for `keras.Sequential`.
        name: As for `keras.Sequential`.
        parallel_strategy: As for `tarantella.Model`, and so are the errors.

    Example:
        >>> import keras, tarantella as tnt
        >>> model = tnt.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    """

    def __init__(
        self,
        layers: Any = None,
        trainable: bool = True,
        name: str | None = None,
        parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
    ) -> None:
        super().__init__(keras.Sequential(layers, trainable=trainable, name=name), parallel_strategy)
