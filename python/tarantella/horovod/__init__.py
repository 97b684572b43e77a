"""Horovod's API for Keras, over Tarantella: `import tarantella.horovod.keras as hvd`.

`tarantella.horovod.tensorflow.keras` and `tarantella.horovod.tensorflow` are its other two faces. The meaning is
Horovod's, not that of `tarantella.Model`: a batch is one rank's, each rank reads its own data, and what only one rank
should do stands behind the user's `if hvd.rank() == 0`. `docs/horovod.md` says what is offered.
"""

from typing import Any, NoReturn


def run(*args: Any, **options: Any) -> NoReturn:
    """Raises NotImplementedError: Horovod's `run` calls a function on ranks that it starts from within Python."""
    raise NotImplementedError(
        "horovod.run is not offered, since ranks run scripts, and not functions: call the function in a script, and "
        "start that with tarantella horovodrun -np 2 python script.py"
    )
