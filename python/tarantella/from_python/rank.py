"""The script of each rank of `tarantella.run`: rank.py FOLDER."""

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
        sys.excepthook = lambda *_: None  # the caller raises it
        excepthook.report_unshown(error)
        raise


def call(folder: Path) -> Any:
    content = payload.read(folder)
    surroundings: payload.Surroundings = next(content)
    sys.path[:] = surroundings.path
    sys.argv[:] = surroundings.argv
    linecache.cache.update({entry[3]: entry for entry in surroundings.sources})
    for stream, is_terminal in zip((sys.stdout, sys.stderr), surroundings.terminals, strict=True):
        if prints_output() and is_terminal and stream is not None:  # then programs redraw lines and use colours
            stream.isatty = lambda: True  # type: ignore[method-assign]
    function, args, kwargs = next(content)
    return function(*args, **kwargs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
