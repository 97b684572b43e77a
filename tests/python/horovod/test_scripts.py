"""Scripts written for Horovod, the command that starts them, and wrong calls."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tarantella import horovod
from tarantella.horovod import horovodrun

SCRIPTS = Path(__file__).parent / "scripts"


def test_a_script_needs_another_import_line_only(executable: str, scripts: Any, tmp_path: Path) -> None:
    source = (SCRIPTS / "keras_mnist.py").read_text()
    script = scripts.write(source.replace("import horovod.", "import tarantella.horovod."))
    hosts = tmp_path / "hosts"
    hosts.write_text(f"# ours\n{socket.gethostname()} slots=2\nlocalhost slots=1\n")
    words = ["-np", "2", "--hostfile", str(hosts), "--gloo", "python", str(script), str(tmp_path)]
    ended = scripts.run([executable, "horovodrun", *words])
    assert ended.code == 0, ended.err
    assert "--gloo: no counterpart, ignored" in ended.err
    assert re.search(r"Epoch 2: finished gradual learning rate warmup to 0\.02", ended.out)
    accuracy = re.search(r"accuracy ([\d.]+) with 2 ranks", ended.out)
    assert accuracy and float(accuracy[1]) > 0.9
    assert len(list(tmp_path.glob("checkpoint-*.keras"))) == 4


def test_wrong_calls_raise_a_sentence(scripts: Any, tmp_path: Path) -> None:
    ended = scripts.ranks(1, SCRIPTS / "misuse.py", str(tmp_path))
    assert ended.code == 0, ended.err
    assert "all seen" in ended.out


def test_horovods_run_names_the_command() -> None:
    with pytest.raises(NotImplementedError, match=r"start that with tarantella horovodrun -np 2 python script\.py"):
        horovod.run(print, np=2)


def test_options_of_horovodrun_become_those_of_the_launcher(tmp_path: Path) -> None:
    host = socket.gethostname()
    settings = ["--fusion-threshold-mb", "2", "--timeline-filename", "a", "--log-level", "FATAL"]
    settings += ["--output-filename", "logs", "--hierarchical-allreduce", "--stall-check-warning-time-seconds", "30"]
    become = ["--fusion-threshold", "2048", "--timeline", "a", "--log-dir", "logs", "--log-level", "ERROR"]
    for words, ranks, others, script in (
        (["-np", "2", "python", "t.py", "-x", "1"], "2", [], ["t.py", "-x", "1"]),
        (["--num-proc", "1", "python3.11", "-u", "t.py"], "1", [], ["-u", "t.py"]),
        (["-np", "3", "-H", f"{host}:1,localhost:2", "./t.py"], "3", [], ["./t.py"]),
        (["-np", "1", "/opt/env/bin/python3", "t.py"], "1", ["--python-interpreter", "/opt/env/bin/python3"], ["t.py"]),
        (["-np", "1", *settings, "--", "t.py"], "1", become, ["t.py"]),
    ):
        expected = ["-n", ranks, "--all-gpus", "--output-on-all-devices", *others, "--", *script]
        assert horovodrun.command_of("tarantella", words) == ["tarantella", *expected]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["python", "t.py"], "required: -np"),
        (["-np", "0", "t.py"], "must be at least 1 (got 0)"),
        (["-np", "2", "python"], "no script given"),
        (["-np", "2", "-H", "far:x", "t.py"], "HOST:SLOTS"),
        (["-np", "2", "-H", "localhost:1", "t.py"], "-np 2: the hosts have 1 slots"),
        (["-np", "2", "-H", "localhost", "t.py"], "given as HOST:SLOTS, such as localhost:4 (got 'localhost')"),
        (["-np", "2", "--hostfile", "/nowhere", "t.py"], "No such file"),
        (["-np", "2", "-H", "localhost:2", "--hostfile", "x", "t.py"], "not both"),
        (["-np", "2", "--min-np", "1", "t.py"], "--min-np: elastic jobs are not offered"),
        (["-np", "2", "--nonsense", "t.py"], "--nonsense"),
    ],
)
def test_wrong_command_lines_of_horovodrun_exit_with_a_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        horovodrun.command_of("tarantella", words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
