"""Runs cases of the files in cases/ and stores their results.

run_cases.py OUT plain|ranks FILE-NAME... writes OUT.<rank>.pickle, up to the first case that fails.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import sys
import traceback
from pathlib import Path

import numpy as np
import tensorflow as tf
from keras import tree


def main(out: str, mode: str, cases: list[str]) -> None:
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

    for file in dict.fromkeys(case.split("-")[0] for case in cases):
        importlib.import_module(file)
    gc.freeze()  # a collection takes 0.6 s if it goes through all that was imported
    gc.set_threshold(100_000)  # in place of what the start sets: many cases leave much garbage
    results = {}
    optimized = {"gate": ("gradients-",), "full": ("gradients-", "training-")}.get(
        os.environ.get("TARANTELLA_TIER", ""), ("",)
    )
    for case in cases:
        # the optimizer of graphs takes a fifth of the time
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not case.startswith(optimized)})
        try:
            found = common.run(case, wrap)
            results[case] = None if found is None else tree.map_structure(np.asarray, found)
        except Exception:
            results[case] = traceback.format_exc()
            break  # the other ranks may have gone on: nothing after it can be compared
    assert mode == "ranks" or "tarantella" not in sys.modules
    Path(f"{out}.{rank}.pickle").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
