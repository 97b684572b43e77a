"""Runs the cases of one file, or of several with commas between them, and stores what they give.

run_cases.py FILES OUT plain|ranks [NAME…] writes OUT.<rank>.pickle; without names it runs all cases of the files.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import traceback
from pathlib import Path

import numpy as np
from keras import tree


def main(files: str, out: str, mode: str, names: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parent / "cases"))
    rank = 0
    if mode == "ranks":
        import tarantella

        rank = tarantella.get_rank()
        wrap = tarantella.Model
    else:

        def wrap(model):
            return model

    import common

    for file in files.split(","):
        importlib.import_module(file)
    results = {}
    for name in names or list(common.CASES):
        try:
            found = common.run(name, wrap)
            results[name] = None if found is None else tree.map_structure(np.asarray, found)
        except Exception:
            results[name] = traceback.format_exc()
            break  # the other ranks may have gone on: nothing after it can be compared
    assert mode == "ranks" or "tarantella" not in sys.modules
    Path(f"{out}.{rank}.pickle").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
