"""Results of the cases, run once a number of ranks: starting TensorFlow costs more than a case."""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def _shared(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE.parent / "conftest.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, int], list[dict[str, Any]]]:
    """`results(file, ranks)`: what each rank's cases of a file in cases/ gave; ranks = 0 is plain Keras.

    Of the cases only those run that were selected, with -k or by name. TARANTELLA_CASES_TOGETHER=1 runs those of all
    files in one process: quicker for a few, but where one fails those after it do not run.
    """
    shared = _shared("tarantella_test_runner")
    folder = tmp_path_factory.mktemp("cases")
    params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    selected = [each for each in params if "file" in each]
    every = ",".join(dict.fromkeys(each["file"] for each in selected))

    @functools.cache
    def run(files: str, ranks: int) -> list[dict[str, Any]]:
        out, script = str(folder / f"{files}.{ranks}"), HERE / "run_cases.py"
        names = list(dict.fromkeys(each["name"] for each in selected if each["file"] in files.split(",")))
        if ranks:
            ended = shared.run_ranks(ranks, script, files, out, "ranks", *names, timeout=800)
        else:
            ended = shared.run([sys.executable, str(script), files, out, "plain", *names], timeout=800)
        stored = [Path(f"{out}.{rank}.pickle") for rank in range(max(ranks, 1))]
        assert all(each.exists() for each in stored), f"exit code {ended.code}\n{ended.err[-6000:]}"
        return [pickle.loads(each.read_bytes()) for each in stored]

    if os.environ.get("TARANTELLA_CASES_TOGETHER"):
        return lambda file, ranks: run(every, ranks)
    return run
