"""The quick start's LeNet-5 on two hosts gives what it gives on one process."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(200)]

PROGRAM = Path(__file__).resolve().parents[3] / "examples/quick_start/model.py"
OPTIONS = ["--batch_size=64", "--train_epochs=1"]


def test_lenet5_learns_the_same_as_on_one_process(hosts, executable) -> None:
    own = {"KERAS_HOME": str(hosts.folder / "keras"), "https_proxy": "http://127.0.0.1:9", "CUDA_VISIBLE_DEVICES": ""}
    alone = [sys.executable, PROGRAM, *OPTIONS, "--json=alone.json"]
    subprocess.run(alone, cwd=hosts.folder, env=os.environ | own, check=True, capture_output=True, timeout=100)
    words = ["-x", *(f"{name}={value}" for name, value in own.items()), "--", PROGRAM, *OPTIONS, "--json=hosts.json"]
    job = hosts.run(executable, hosts.hostfile(2, 2), "--no-gpu", *words, timeout=100)
    assert job.code == 0, job.err
    one, four = (json.loads((hosts.folder / name).read_text()) for name in ("alone.json", "hosts.json"))
    assert (one["ranks"], four["ranks"]) == (1, 4)
    assert one["data"] == four["data"] == "digits"
    assert one["accuracy"] > 0.6
    assert math.isclose(one["accuracy"], four["accuracy"], abs_tol=0.005)
    assert math.isclose(one["loss"], four["loss"], rel_tol=1e-3)
    hosts.wait_for_none()
