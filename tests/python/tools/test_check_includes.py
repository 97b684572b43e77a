"""tools/check_includes.py: the dependencies that it accepts and refuses."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


def run(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "tools/check_includes.py"), str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def check(tmp_path: Path, file: str, include: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f"#pragma once\n#include {include}\n")
    return run(tmp_path)


def test_the_repository_is_clean():
    done = run(REPOSITORY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("src/base/log.cpp", '"base/status.h"'),
        ("src/base/log.cpp", "<vector>"),
        ("src/launch/spawn.cpp", '"runtime/topology.h"'),
        ("src/launch/spawn.cpp", "<CLI/CLI.hpp>"),
        ("src/launch/ranks/job.h", '"launch/output/streams.h"'),
        ("src/transport/shm/shm.cpp", '"runtime/rendezvous.h"'),
        ("src/transport/shm/shm.cpp", '"transport/node_memory.h"'),
        ("src/collective/allreduce.cpp", '"transport/node_memory.h"'),
        ("src/engine/engine.cpp", '"collective/allreduce.h"'),
        ("src/capi/connect.cpp", '"transport/shm/shm.h"'),
        ("src/capi/context.cpp", '"tarantella/tarantella.h"'),
        ("bindings/tensorflow/op.cpp", '"tarantella/tarantella.h"'),
        ("bindings/tensorflow/op.cpp", '"tensorflow/c/ops.h"'),
    ],
)
def test_includes_that_point_up(tmp_path, file, include):
    done = check(tmp_path, file, include)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("src/base/log.cpp", '"runtime/topology.h"'),
        ("src/runtime/topology.cpp", '"transport/node_memory.h"'),
        ("src/transport/shm/shm.cpp", '"collective/allreduce.h"'),
        ("src/collective/allreduce.cpp", '"transport/shm/shm.h"'),
        ("src/collective/allreduce.cpp", '"runtime/topology.h"'),
        ("src/collective/allreduce.cpp", "<transport/shm/shm.h>"),
        ("src/engine/engine.cpp", '"transport/shm/shm.h"'),
        ("src/engine/engine.cpp", '"capi/context.h"'),
        ("src/capi/context.cpp", '"transport/shm/shm.h"'),
        ("src/launch/spawn.cpp", '"engine/engine.h"'),
        ("src/launch/output/streams.h", '"launch/cluster/connection.h"'),
        ("src/launch/cli/option_defaults.cpp", '"launch/hosts/allocation.h"'),
        ("src/launch/spawn.cpp", '"tarantella/tarantella.h"'),
        ("include/tarantella/tarantella.h", '"base/status.h"'),
        ("bindings/python/module.cpp", '"engine/engine.h"'),
        ("src/base/log.cpp", '"../runtime/topology.h"'),
        ("src/base/log.cpp", '"status.h"'),
        ("src/cellar/wine.cpp", "<vector>"),
    ],
)
def test_includes_that_point_down(tmp_path, file, include):
    done = check(tmp_path, file, include)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith(f"{file}:")


def test_every_violation_has_its_line(tmp_path):
    path = tmp_path / "src/base/log.cpp"
    path.parent.mkdir(parents=True)
    path.write_text('#include "engine/a.h"\n\n  #  include "engine/b.h"\n// #include "engine/c.h"\n')
    lines = run(tmp_path).stdout.splitlines()
    assert [line.split(":")[1] for line in lines] == ["1", "3"]


def check_python(tmp_path: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for file, text in files.items():
        path = tmp_path / "python/tarantella" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return run(tmp_path)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("_job/runtime.py", "from . import log"),
        ("_exchange.py", "from ._job import runtime"),
        ("_backend/tensorflow/plans.py", "import tensorflow as tf"),
        ("data/tf_data/slicer.py", "from tensorflow.python.data import ops"),
        ("data/adapter.py", "from ..keras import private"),
        ("keras/private.py", "from keras.src import trainers"),
        ("keras/step/gradients.py", "from ..._backend import backend"),
        ("keras/epoch_end.py", "from . import hooks, model_state"),
        ("keras/fit.py", "from .epoch_end import batch_logs"),
        ("models.py", "from .keras.model import Model"),
        ("verify/observe.py", "def f():\n    from ..keras import start"),
        ("__init__.py", "from . import data, keras"),
    ],
)
def test_imports_that_point_down(tmp_path, file, text):
    done = check_python(tmp_path, {file: text})
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("_job/runtime.py", "from .. import _exchange"),
        ("_job/runtime.py", "import numpy as np"),
        ("_exchange.py", "from .keras import hooks"),
        ("_backend/tensorflow/plans.py", "from ...keras import hooks"),
        ("data/input.py", "import tensorflow as tf"),
        ("data/input.py", "from ..keras.private import x; from ..keras.hooks import hook"),
        ("data/input.py", "from keras.src.trainers import data_adapters"),
        ("keras/step/losses.py", "from keras import src"),
        ("keras/step/losses.py", "from ..._backend import tensorflow as backend"),
        ("keras/model.py", "from ..verify import observe"),
        ("verify/observe.py", "import tensorflow as tf"),
        ("keras/step/losses.py", "from .. import epoch_end"),
        ("keras/epoch_end.py", "from .step import losses"),
        ("keras/epoch_end.py", "def f():\n    from . import fit"),
        ("keras/fit.py", "from tarantella.keras.model import Model"),
        ("keras/model.py", "from ..verify import runs"),
        ("keras/cellar/wine.py", "x = 1"),
    ],
)
def test_imports_that_point_up(tmp_path, file, text):
    done = check_python(tmp_path, {file: text})
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith(f"python/tarantella/{file}:")


def test_a_circle_of_imports_is_named(tmp_path):
    files = {
        "data/a.py": "from . import b",
        "data/b.py": "def f():\n    from .c import g",
        "data/c.py": "from . import a",
    }
    done = check_python(tmp_path, files)
    assert (done.returncode, done.stdout) == (1, "a circle of imports: data/a -> data/b -> data/c -> data/a\n")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(model): return model._loss", ["_loss"]),
        ('def f(model): return getattr(model, "_loss", None)', ["_loss"]),
        ("def f(model): return model._new_in_keras", ["_new_in_keras"]),
        ("class A:\n    def f(self, other): self._own = other._own", []),
        ("class A:\n    def f(self): return self._loss", []),
        ("def f(plan): return plan._replace(a=1)", []),
    ],
)
def test_private_names_of_keras(tmp_path, text, names):
    private = "def loss(model): return model._loss"
    done = check_python(tmp_path, {"keras/private.py": private, "keras/epoch_end.py": text})
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == names
    assert done.returncode == bool(names)
