"""Processes that a rank starts are no ranks: workers of a pool, other scripts, forks. No TensorFlow is needed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.real_start, pytest.mark.timeout(120)]

WHO = "import tarantella as tnt; tnt.init(); print(tnt.get_rank(), tnt.get_size(), tnt.is_master_rank())"


def test_workers_of_a_pool_are_no_ranks(scripts: Any) -> None:
    source = """
    import concurrent.futures, multiprocessing, subprocess, sys
    import tarantella as tnt

    tnt.init()  # at the top level: every worker that imports this script comes by

    def who(_):
        tnt.init()
        return tnt.get_rank(), tnt.get_size(), tnt.get_local_rank()

    if __name__ == "__main__":
        rank, alone = tnt.get_rank(), [(0, 1, 0)] * 3
        for method in ("spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                assert pool.map(who, range(3)) == alone, method
        spawn = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
            assert list(pool.map(who, range(3))) == alone
        with multiprocessing.get_context("fork").Pool(1) as pool:  # knows whose rows it prepares
            assert pool.map(who, range(1)) == [(rank, 2, rank)]
        tnt.Barrier().execute()
        assert (tnt.get_rank(), tnt.get_size()) == (rank, 2)
        print("all well")
    """
    ended = scripts.ranks(2, source, timeout=60)
    assert (ended.code, ended.out, ended.lines) == (0, "all well\n", []), ended.err


def test_a_worker_that_imports_before_its_parent(scripts: Any) -> None:
    source = """
    import multiprocessing, subprocess, sys

    def who(_):
        import tarantella as tnt
        tnt.init()
        line = subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True).stdout
        return tnt.get_rank(), tnt.get_size(), line

    if __name__ == "__main__":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(who, range(1)) == [(0, 1, "0 1 True\\n")]
        import tarantella as tnt
        tnt.Barrier().execute()
        assert tnt.get_size() == 2
    """
    ended = scripts.ranks(2, source, WHO, timeout=60)
    assert ended.code == 0, ended.err


def test_a_script_that_a_rank_starts_is_no_rank(scripts: Any) -> None:
    source = """
    import subprocess, sys
    import tarantella as tnt
    for command in ([sys.executable, "-c", sys.argv[1]], ["sh", "-c", f"{sys.executable} -c '{sys.argv[1]}'; true"]):
        subprocess.run(command, check=True)
    tnt.Barrier().execute()
    print(tnt.get_rank(), tnt.get_size())
    """
    ended = scripts.ranks(2, source, WHO, timeout=60)
    assert (ended.code, ended.out) == (0, "0 1 True\n0 1 True\n0 2\n"), ended.err
    said = [line for line in ended.lines if "WARNING" in line]
    assert len(said) == len(ended.lines) == 2
    assert all("was started by rank 0" in line and "without other ranks" in line for line in said)


def test_a_script_started_with_another_environment_is_no_rank(scripts: Any) -> None:
    """With an environment from before the rank claimed its number; also forked or behind a shell, not after exec."""
    source = """
    import multiprocessing, os, subprocess, sys
    before = {**os.environ, "COPY": "1"}
    if "COPY" not in os.environ:
        import tarantella as tnt
        os.execve(sys.executable, [sys.executable, *sys.argv], before)
    import tarantella as tnt
    fork = multiprocessing.get_context("fork")
    lasting = fork.Process(target=__import__("time").sleep, args=(100,), daemon=True)
    lasting.start()

    def child(shell):
        command = [sys.executable, "-c", sys.argv[1]]
        if shell:
            command = ["sh", "-c", f"{sys.executable} -c '{sys.argv[1]}'; true"]
        subprocess.run(command, check=True, env=before, timeout=30)

    child(False)
    child(True)
    worker = fork.Process(target=child, args=(False,))
    worker.start()
    worker.join()
    tnt.Barrier().execute()
    print(tnt.get_rank(), tnt.get_size())
    """
    ended = scripts.ranks(2, source, WHO, timeout=60)
    assert (ended.code, ended.out) == (0, "0 1 True\n" * 3 + "0 2\n"), ended.err


def test_the_place_of_a_rank_is_passed_on(scripts: Any) -> None:
    source = """
    import os, subprocess, sys
    import tarantella
    command = [sys.executable, "-c", sys.argv[1]]
    sys.exit(subprocess.run(command, env={**os.environ, "TNT_RANK_PID": ""}, timeout=40).returncode)
    """
    ended = scripts.ranks(2, source, f"{WHO}; tnt.Barrier().execute()", timeout=60)
    assert (ended.code, ended.out, ended.lines) == (0, "0 2 True\n", []), ended.err


def test_a_helper_that_is_there_first_and_scripts_one_after_another(scripts: Any) -> None:
    """Only those that have started a process keep it from being the rank, and only while they live."""
    helper = "import tarantella, time; print(flush=True); time.sleep(100)"
    script = scripts.write(
        f"""
        import os, subprocess, sys, time
        helper = subprocess.Popen([sys.executable, "-c", {helper!r}], stdout=subprocess.PIPE)
        helper.stdout.readline()
        import tarantella as tnt
        tnt.init()
        tnt.Barrier().execute()
        print(tnt.get_rank(), tnt.get_size())
        helper.kill()
        """
    )
    wrapper = scripts.write(
        f"""\
        #!/bin/sh
        {sys.executable} -c 'import os, tarantella, time; os.fork() or (os.close(1), os.close(2), time.sleep(9))'
        {sys.executable} {script}
        """,
        "wrapper.sh",
    )
    wrapper.chmod(0o755)
    ended = scripts.ranks(2, wrapper, timeout=60)
    assert (ended.code, ended.out, ended.lines) == (0, "0 2\n", []), ended.err


def test_a_job_inside_a_rank(scripts: Any, executable: str) -> None:
    source = """
    import subprocess, sys
    import tarantella as tnt
    tnt.init()
    if tnt.is_master_rank():
        command = [sys.argv[1], "-n", "3", "--no-gpu", "--output-on-all-devices", "--", sys.argv[2]]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    tnt.Barrier().execute()
    """
    inner = scripts.write(f"{WHO}; tnt.Barrier().execute()", "inner.py")
    ended = scripts.ranks(2, source, executable, str(inner), timeout=60)
    assert ended.code == 0, ended.err
    assert sorted(ended.out.split("\n"))[-3:] == ["[0] 0 3 True", "[1] 1 3 False", "[2] 2 3 False"]


def test_a_rank_may_be_started_by_a_shell_and_become_another_program(scripts: Any) -> None:
    inner = scripts.write(
        """
        import os, sys
        import tarantella as tnt
        if "-again" not in sys.argv:
            os.execv(sys.executable, [sys.executable, *sys.argv, "-again"])
        tnt.Barrier().execute()
        print(tnt.get_rank(), tnt.get_size())
        """,
        "inner.py",
    )
    wrapper = scripts.write(f"#!/bin/sh\n{sys.executable} {inner} $1\necho ended\n", "wrapper.sh")
    wrapper.chmod(0o755)
    ended = scripts.ranks(2, wrapper, "argument", timeout=60)
    assert (ended.code, ended.out, ended.lines) == (0, "0 2\nended\n", []), ended.err


def test_a_forked_child_takes_no_part(scripts: Any) -> None:
    source = """
    import os, sys
    import tarantella as tnt

    def in_a_child():
        child = os.fork()
        if child == 0:
            code = 3
            try:
                assert (tnt.get_rank(), tnt.get_size()) == place
                tnt.init()
                tnt.Barrier().execute()
            except (RuntimeError, ValueError) as error:
                code = 0 if "forked" in str(error) else 4
            os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    place = (tnt.get_rank(), tnt.get_size())
    assert in_a_child() == 0, "before the rank itself has joined"
    tnt.Barrier().execute()
    assert in_a_child() == 0, "after"
    tnt.Barrier().execute()
    """
    ended = scripts.ranks(2, source, timeout=60)
    assert ended.code == 0, ended.err


def test_verify_watches_ranks_and_not_their_children(scripts: Any) -> None:
    source = """
    import sys
    from tarantella._job import environment
    assert environment.is_verified() == (sys.argv[1] == "rank")
    """
    rank = {"TNT_RANK": "0", "TNT_SIZE": "1", "TNT_VERIFY": "nowhere"}
    assert scripts.plain(source, "rank", **rank).code == 0
    assert scripts.plain(source, "child", **rank, TNT_RANK_PID="1").code == 0
    assert scripts.plain(source, "child").code == 0
