"""What each rank of `tarantella.run` runs: rank.py FOLDER."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Any

from tarantella._job import excepthook
from tarantella._job.environment import layout, prints_output
from tarantella.from_python import outcome, payload


def main(folder: Path) -> None:
    rank = layout().rank
    try:
        result = call(folder)
        outcome.save_result(folder, rank, result)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        outcome.save_result(folder, rank, None)
    except BaseException as error:
        outcome.save_error(folder, rank, error)
        sys.excepthook = show_nothing  # the caller raises it
        excepthook.tell_unshown(error)
        raise


def call(folder: Path) -> Any:
    content = payload.read(folder)
    surroundings: payload.Surroundings = next(content)
    sys.path[:] = surroundings.path
    sys.argv[:] = surroundings.argv
    linecache.cache.update({entry[3]: entry for entry in surroundings.sources})
    if prints_output():
        write_as_to(surroundings.terminals)
    function, args, kwargs = next(content)
    return function(*args, **kwargs)


def write_as_to(terminals: tuple[bool, bool]) -> None:
    """Lets programs redraw lines and use colours where the caller shows them on a terminal."""
    for stream, is_terminal in zip((sys.stdout, sys.stderr), terminals, strict=True):
        if is_terminal and stream is not None:
            stream.isatty = lambda: True  # type: ignore[method-assign]


def show_nothing(*_: object) -> None:
    pass


if __name__ == "__main__":
    main(Path(sys.argv[1]))
