"""Horovod's API for Keras, over Tarantella: `import tarantella.horovod.keras as hvd`.

`tarantella.horovod.tensorflow.keras` and `tarantella.horovod.tensorflow` are other names for it. It works like Horovod,
not like `tarantella.Model`: each rank reads its own data, a batch belongs to one rank, and the script decides with
`if hvd.rank() == 0` what only one rank does. `docs/horovod.md` lists what is offered.
"""

from typing import Any, NoReturn


def run(*args: Any, **options: Any) -> NoReturn:
    """Raises NotImplementedError. Horovod's `run` starts ranks from Python and calls a function on each."""
    raise NotImplementedError(
        "horovod.run is not offered: call the function in a script, and start that with "
        "tarantella horovodrun -np 2 python script.py; or use tarantella.run"
    )
