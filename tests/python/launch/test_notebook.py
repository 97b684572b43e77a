"""`tarantella.run` in a real kernel of Jupyter."""

from __future__ import annotations

import os
import re
import signal
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from jupyter_client.manager import KernelManager

pytestmark = [pytest.mark.timeout(200), pytest.mark.computes]

TRAIN = """
def train(epochs):
    import keras
    import numpy as np
    import tensorflow as tf

    @tf.function
    def count(x):
        while x < 10:  # AutoGraph reads this cell
            x += 1
        return x

    keras.utils.set_random_seed(1)
    model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)]))
    model.compile("sgd", "mse")
    history = model.fit(np.ones((64, 4)), np.ones((64, 1)), batch_size=16, epochs=epochs).history
    return tnt.get_rank(), int(count(tf.constant(3))), model, history["loss"]
"""


@dataclass
class Cell:
    """What a cell has shown."""

    streams: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    error: str = ""
    traceback: str = ""


class Notebook:
    def __init__(self, launcher):
        self.launcher = launcher
        self.manager = KernelManager(kernel_name="python3")
        environment = {**launcher.env, "TMPDIR": str(launcher.folder)}
        self.manager.start_kernel(cwd=str(launcher.folder), env=environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, source: str, when: str = "", then: Callable[[], None] | None = None) -> Cell:
        """Runs a cell to its end. Calls `then` once `when` has appeared on its stdout."""
        cell = Cell()
        waits = then is not None

        def show(message):
            nonlocal waits
            content = message["content"]
            if message["msg_type"] == "stream":
                cell.streams[content["name"]] += content["text"]
            if message["msg_type"] == "error":
                cell.error, cell.traceback = content["ename"], "\n".join(content["traceback"])
            if waits and when in cell.streams["stdout"]:
                waits = False
                then()

        self.client.execute_interactive(textwrap.dedent(source), output_hook=show, timeout=120)
        return cell

    def pid(self) -> int:
        return int(self.run("import os; print(os.getpid())").streams["stdout"])

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(launcher):
    made = Notebook(launcher)
    made.run("import tarantella as tnt")
    yield made
    made.close()


def on_screen(text: str) -> list[str]:
    """The lines that carriage returns and backspaces leave, without colours, and without what times change."""
    lines = []
    for line in re.sub(r"\x1b\[\d*m", "", text).rstrip("\n").split("\n"):
        shown, at = [], 0
        for letter in line:
            if letter in "\r\b":
                at = 0 if letter == "\r" else max(0, at - 1)
                continue
            shown[at : at + 1] = [letter]
            at += 1
        lines.append(re.sub(r"\d+m?s(/epoch|/step)?|\s+$", "", "".join(shown)))
    return lines


def test_a_cell_trains_and_shows_progress_as_in_the_kernel(notebook):
    """One rank is plain Keras, in the kernel; its cell shows what that of two ranks shows."""
    notebook.run(TRAIN)
    cell = notebook.run("results = tnt.run(train, n=2, args=(2,))")
    assert cell.error == "", cell.traceback
    here = notebook.run("mine = train(2)")
    assert here.error == "", here.traceback
    ours, keras = on_screen(cell.streams["stdout"]), on_screen(here.streams["stdout"])
    assert "\r" in cell.streams["stdout"]
    assert len(ours) == 4
    assert [line.split("loss")[0] for line in ours] == [line.split("loss")[0] for line in keras]
    checked = notebook.run("""
        import numpy as np
        weights = [result[2].get_weights() for result in [*results, mine]]
        same = all(np.allclose(a, b, atol=1e-6) for each in weights for a, b in zip(each, weights[-1]))
        print(same, [result[:2] for result in results], np.allclose(results[1][3], mine[3], atol=1e-6))
    """)
    assert checked.streams["stdout"] == "True [(0, 10), (1, 10)] True\n"


def test_errors_and_interrupts(notebook):
    notebook.run("""
        class Odd(Exception):
            pass

        def fail():
            if tnt.get_rank() == 1:
                raise Odd("of a cell")
            tnt.Barrier().execute()

        def wait():
            import signal
            print("ready", flush=True)
            signal.pause()
    """)
    failed = notebook.run("tnt.run(fail, n=2)")
    assert failed.error == "Odd"
    assert 'raise Odd("of a cell")' in failed.traceback
    assert "rank 1 (pid " in failed.traceback
    assert failed.streams == {"stdout": "", "stderr": ""}
    caught = notebook.run("""
        try:
            tnt.run(fail, n=2)
        except Odd as error:
            print("caught", error)
    """)
    assert caught.streams["stdout"] == "caught of a cell\n"
    stopped = notebook.run("tnt.run(wait, n=2)", "ready", notebook.manager.interrupt_kernel)
    assert (stopped.error, stopped.streams) == ("KeyboardInterrupt", {"stdout": "ready\n", "stderr": ""})
    assert notebook.launcher.pids() == [notebook.pid()]
    assert list(notebook.launcher.folder.glob("tarantella-run-*")) == []


def test_ranks_end_with_a_kernel_that_is_killed(notebook):
    process = notebook.pid()
    notebook.run(
        """
        def wait():
            import signal
            print("ready", flush=True)
            signal.pause()
        """
    )
    shown = []
    notebook.client.execute("tnt.run(wait, n=2)")
    while "ready" not in "".join(shown):
        message = notebook.client.get_iopub_msg(timeout=60)
        shown += [message["content"]["text"]] if message["msg_type"] == "stream" else []
    os.kill(process, signal.SIGKILL)
    notebook.launcher.wait_for_none()
    assert list(notebook.launcher.folder.glob("tarantella-run-*")) == []
