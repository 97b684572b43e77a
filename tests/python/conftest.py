"""What all tests share: the interpreters that they start, hosts, and how long each folder took."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "tools")]

from jobs import Scripts, cases_together, find_executable, preloaded_pythons, warm
from needs import give_up
from network_hosts import Hosts, missing

HERE = Path(__file__).parent
LEAN = str(HERE / "lean")
OTHER_MPIS = {"open_mpi", "intel_mpi"}  # fixtures and values: most of the gate has MPICH
# Programs beside the package; the gate has one run over the commands of the pages (test_documents).
REST = ("examples/", "single/test_imagenet_parts.py", "single/test_transformer_parts.py", "tools/test_bench")
# Most of their tests wait for processes, and compute little.
WAITING = ("hosts/", "launch/", "slurm/", "parallel/test_endings.py", "parallel/test_lives.py")
# What a shell or nohup has started in the background ignores some of these, and so would the jobs of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [LEAN, os.environ.get("PYTHONPATH")]))


def pytest_configure(config: pytest.Config) -> None:
    """Once for all workers of a run."""
    if not hasattr(config, "workerinput"):
        ending = ExitStack()
        ending.enter_context(preloaded_pythons(Path(ending.enter_context(tempfile.TemporaryDirectory()))))
        config.add_cleanup(ending.close)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is not in the gate, and what waits."""
    for item in items:
        path = str(item.path.relative_to(HERE))
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        names = [*getattr(item, "fixturenames", ()), *(value for value in values if isinstance(value, str))]
        if (path.startswith(REST) and item.path.stem != "test_documents") or not OTHER_MPIS.isdisjoint(names):
            item.add_marker("full")
        if path.startswith(WAITING) and item.get_closest_marker("computes") is None:
            item.add_marker("waits")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker runs a module that is run in its process, cases that share a job, or all that shares a Slurm."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0].removeprefix("tests/python/")
            if path == "parallel/test_equals_one_process.py":
                file = re.search(r"\[(\w+)-", nodeid)
                return cases_together(file[1]) if file else path
            if path.startswith("slurm/"):
                return "slurm"
            return nodeid if path.startswith((*WAITING, "horovod/", "parallel/")) else path

    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture
def scripts(request: pytest.FixtureRequest, tmp_path: Path) -> Scripts:
    """Its interpreter is a preloaded one, unless the test is marked `real_start`."""
    is_real = request.node.get_closest_marker("real_start") is not None
    return Scripts(tmp_path, "" if is_real else warm("python3"))


@pytest.fixture
def executable() -> str:
    return find_executable()


@pytest.fixture(scope="session")
def all_hosts() -> Iterator[Hosts]:
    """Skips where hosts cannot be made; with TARANTELLA_NEEDS=hosts it fails there."""
    lacks = missing()
    if not (Path(sys.executable).parent / "mpiexec").exists():
        lacks.append("the package mpich")
    if lacks:
        give_up("hosts", f"hosts need {', '.join(lacks)} (tools/setup.sh --dev installs them)")
    made = Hosts()
    yield made
    made.remove()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how long the tests of each folder took, in all."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[os.path.dirname(report.nodeid.partition("::")[0])] += report.duration
    terminalreporter.section("seconds of tests by folder")
    for folder in sorted(seconds, key=seconds.__getitem__, reverse=True):
        terminalreporter.write_line(f"{seconds[folder]:6.0f}  {folder}")
