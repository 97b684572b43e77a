"""The quick start's data on two hosts: who downloads it, and that all ranks train on the same."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

# Stands for the network: MNIST comes from a file, and only to the hosts that are named.
LOAD = """
    import hashlib, io, os, socket, sys, urllib.request
    homes, reaching, folder = sys.argv[1:]
    here = socket.gethostname()
    os.environ["KERAS_HOME"] = here if homes == "apart" else "shared"
    sys.path.insert(0, folder)
    import mnist
    import numpy as np
    import tarantella as tnt

    content = io.BytesIO()
    parts = {f"{kind}_{split}": np.zeros(2, "uint8") for kind in "xy" for split in ("train", "test")}
    np.savez(content, **parts)
    mnist.SHA256 = hashlib.sha256(content.getvalue()).hexdigest()

    def urlopen(*_, **__):
        open(f"asked-{tnt.get_rank()}", "w").close()
        if here not in reaching:
            raise OSError("no route")
        return io.BytesIO(content.getvalue())

    urllib.request.urlopen = urlopen
    mnist.load_digits = lambda: ((np.zeros(3), np.zeros(3)),) * 2
    tnt.init()
    open(f"{mnist.load()[0]}-{tnt.get_rank()}", "w").close()
"""
FOLDER = Path(__file__).resolve().parents[3] / "examples/quick_start"


@pytest.mark.parametrize(
    ("homes", "reaching", "asked", "data"),
    [
        ("apart", "node1,node2", [0, 2], "MNIST"),
        ("apart", "node1", [0, 2], "digits"),
        ("shared", "node1", [0], "MNIST"),
    ],
)
def test_all_ranks_have_the_same_data(hosts, executable, homes, reaching, asked, data) -> None:
    hosts.script(LOAD, "load.py")
    job = hosts.run(executable, hosts.hostfile(2, 2), "--", "load.py", homes, reaching, FOLDER, timeout=60)
    assert job.code == 0, job.err
    made = {path.name for path in hosts.folder.iterdir() if path.name.startswith(("asked-", "MNIST-", "digits-"))}
    assert made == {*(f"asked-{rank}" for rank in asked), *(f"{data}-{rank}" for rank in range(4))}
    assert job.out.count("MNIST is neither cached nor reachable") == (data == "digits")
    hosts.wait_for_none()
