"""Results of the cases, run once for each number of ranks: starting TensorFlow costs more than a case."""

from __future__ import annotations

import functools
import itertools
import math
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
import pytest

HERE = Path(__file__).parent
Ranks = int | str


def size(ranks: Ranks) -> int:
    """The number of ranks."""
    return ranks if isinstance(ranks, int) else math.prod(map(int, ranks.split("x")))


@pytest.fixture(scope="session")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str, Ranks], list[Any]]:
    """`results(file, name, ranks)`: what each rank's case of a file in cases/ gave; ranks = 0 is plain Keras.

    "2x1" stands for two hosts with one rank each.

    Cases of the same `jobs.cases_together` run in one job for each number of ranks, all of those that were selected
    (with -k or by name). TARANTELLA_CASES_TOGETHER=1 runs all files together.
    """
    folder = tmp_path_factory.mktemp("cases")
    params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    selected = [(p["file"], p["name"], p["ranks"]) for p in params if p.keys() == {"file", "name", "ranks"}]
    numbers = itertools.count()

    def run_hosts(layout: str, *arguments: str) -> Any:
        hosts = request.getfixturevalue("all_hosts")
        where = folder / f"job-{layout}-{next(numbers)}"
        where.mkdir()
        hosts.use(where)
        option = hosts.hostfile(*map(int, layout.split("x")))
        try:
            return hosts.run(jobs.find_executable(), option, "--no-gpu", "--", *arguments, timeout=1700)
        finally:
            hosts.end_all()

    def job(ranks: Ranks, cases: list[str]) -> list[dict[str, Any]]:
        """The results of each rank, up to the first case that failed on a rank. All of them fail if the job dies."""
        out = str(folder / str(next(numbers)))
        arguments = [HERE / "run_cases.py", out, "ranks" if ranks else "plain", *cases]
        python = sys.executable if jobs.TIER != "gate" and ranks == 2 else jobs.warm("python3")
        environment = {"TARANTELLA_TESTS_HIDE": ""} if "inputs-pandas_frames" in cases else {}
        if isinstance(ranks, str):
            ended = run_hosts(ranks, *arguments)
        elif ranks:
            ended = jobs.run_ranks(ranks, *arguments, python=python, timeout=1700, **environment)
        else:
            ended = jobs.run([python, *arguments], timeout=1700, **environment)
        stored = [Path(f"{out}.{rank}.pickle") for rank in range(max(size(ranks), 1))]
        if not all(each.exists() for each in stored):
            died = f"its job ended with exit code {ended.code}:\n{ended.err[-6000:]}"
            return [dict.fromkeys(cases, died) for _ in stored]
        return [pickle.loads(each.read_bytes()) for each in stored]

    @functools.cache
    def run(of: str, ranks: Ranks) -> dict[str, list[Any]]:
        of_job = [(file, name) for file, name, n in selected if jobs.cases_together(file) == of and ranks in (0, n)]
        cases = [f"{file}-{name}" for file, name in of_job]
        left, found = list(dict.fromkeys(cases)), {}
        while left:  # a case that fails ends its job: those after it get one of their own
            each_rank = job(ranks, left)
            ran = [case for case in left if all(case in rank for rank in each_rank)]
            found |= {case: [rank[case] for rank in each_rank] for case in ran}
            left = left[len(ran) :]
        return found

    return lambda file, name, ranks: run(jobs.cases_together(file), ranks)[f"{file}-{name}"]
