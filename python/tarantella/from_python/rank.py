"""The script of each rank of `tarantella.run`: rank.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

from tarantella._job import excepthook
from tarantella._job.environment import layout
from tarantella.from_python import outcome, payload


def main(folder: Path) -> None:
    rank = layout().rank
    try:
        outcome.save_result(folder, rank, payload.run(folder))
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        outcome.save_result(folder, rank, None)
    except BaseException as error:
        outcome.save_error(folder, rank, error)
        sys.excepthook = lambda *_: None  # the caller raises it
        excepthook.report_unshown(error)
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
