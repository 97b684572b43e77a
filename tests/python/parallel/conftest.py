"""Results of the cases, run once a number of ranks: starting TensorFlow costs more than a case."""

from __future__ import annotations

import functools
import importlib.util
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

    Of the cases only those run that were selected, with -k or by name.
    """
    shared = _shared("tarantella_test_runner")
    folder = tmp_path_factory.mktemp("cases")
    selected = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]

    @functools.cache
    def run(file: str, ranks: int) -> list[dict[str, Any]]:
        out, script = str(folder / f"{file}.{ranks}"), HERE / "run_cases.py"
        names = list(dict.fromkeys(p["name"] for p in selected if p.get("file") == file))
        if ranks:
            ended = shared.run_ranks(ranks, script, file, out, "ranks", *names, timeout=800)
        else:
            ended = shared.run([sys.executable, str(script), file, out, "plain", *names], timeout=800)
        files = [Path(f"{out}.{rank}.pickle") for rank in range(max(ranks, 1))]
        assert all(file.exists() for file in files), f"exit code {ended.code}\n{ended.err[-6000:]}"
        return [pickle.loads(file.read_bytes()) for file in files]

    return run
