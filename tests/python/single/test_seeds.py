"""When TensorFlow gets the default seed. A stand-in takes its place: importing the real one takes seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TENSORFLOW = {
    "__init__.py": "from . import random",
    "random.py": "from .python.eager import context\nset_seed = context.seeds.append",
    "python/__init__.py": "",
    "python/eager/__init__.py": "",
    "python/eager/context.py": "seeds = []\nglobal_seed = lambda: seeds[-1] if seeds else None",
}


@pytest.mark.parametrize(
    ("before", "seeds"),
    [
        ("", [42]),
        ("importlib.util.find_spec('tensorflow')", [42]),
        ("[importlib.util.find_spec('tensorflow') for _ in range(3)]", [42]),
        ("import tensorflow; tensorflow.random.set_seed(7)", [42, 7]),
    ],
)
def test_looking_for_tensorflow_is_not_importing_it(before: str, seeds: list[int], tmp_path: Path) -> None:
    for name, source in TENSORFLOW.items():
        (tmp_path / "tensorflow" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tensorflow" / name).write_text(source)
    code = (
        f"import importlib.util, sys, tarantella\n{before}\nimport tensorflow\n"
        f"assert tensorflow.random.context.seeds == {seeds}, tensorflow.random.context.seeds\n"
        "assert not any(getattr(each, 'name', '') == 'tensorflow' for each in sys.meta_path)\n"
    )
    _run_on_a_rank(code, tmp_path)


@pytest.mark.parametrize("stub", ["None", "types.ModuleType('tensorflow')", "types.SimpleNamespace()"])
def test_tensorflow_may_be_blocked_or_a_stub(stub: str, tmp_path: Path) -> None:
    _run_on_a_rank(f"import sys, types; sys.modules['tensorflow'] = {stub}; import tarantella", tmp_path)


def _run_on_a_rank(code: str, path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(path), "TNT_RANK": "0", "TNT_SIZE": "2"}
    environment.pop("TNT_RANK_PID", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
