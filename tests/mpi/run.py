#!/usr/bin/env python3
"""Runs mpi_endpoints under the mpiexec of one MPI of build/mpi, in all its ways to end. Usage: run.py MPI NODES PROGRAM

Exits with 77 where that MPI is missing, unless TARANTELLA_NEEDS names mpi.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

MPIS = Path(__file__).resolve().parents[2] / "build" / "mpi"
SHM = Path("/dev/shm")
# How processes may end without MPI_Finalize, and without the end of the others; over TCP, as between hosts. (MPICH does
# so by what the endpoint sets.)
LIBRARY, KEEP, OVER_TCP = {
    "mpich": ("mpi-abi:{lib}/libmpi_abi.so.1", ["-disable-auto-cleanup"], {}),
    "impi-rt": (
        "mpi-abi:{lib}/libmpi_abi.so.1",
        ["-disable-auto-cleanup"],
        {"I_MPI_FABRICS": "ofi", "FI_PROVIDER": "tcp"},
    ),
    "openmpi": (
        "openmpi:{lib}/libmpi.so.40",
        ["--bind-to", "none", "--oversubscribe", "--runtime-options", "continuous,error-nonzero-status=0"],
        {"OMPI_MCA_btl": "self,tcp"},
    ),
}[sys.argv[1]]
# How a life beside another may end; see main.cpp.
LIVES = {
    "idle": "a node that was killed while nothing was sent",
    "gone": "a node that is killed",
    "midst": "a node that is killed in the midst of transfers",
    "busy": "a node that does not close",
}
# Over TCP, MPI_Isend of Intel MPI 2021 to a process that has died does not return.
if sys.argv[1] == "impi-rt":
    del LIVES["idle"], LIVES["gone"], LIVES["midst"]


def start(mpi: str, nodes: int, *words: str, limit: float = 60) -> tuple[int, str, float]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "SLURM", "OMPI_"))}
    environment |= {"TNT_TRANSPORT": LIBRARY.format(lib=MPIS / mpi / "lib")}
    environment |= OVER_TCP
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # Below a shell, as below a launcher: MPICH's mpiexec kills all if a process of its own is killed.
    shell = ["sh", "-c", 'trap "" USR1; "$0" "$@"; code=$?; [ $code -gt 128 ] || exit $code', *words]
    command = [str(MPIS / mpi / "bin" / "mpiexec"), *KEEP, "-n", str(nodes), *shell]
    begin = time.monotonic()
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            output, _ = process.communicate(timeout=10)
            output += f"\n(no end after {limit} s)"
    return process.returncode, output, time.monotonic() - begin


def check(what: str, holds: bool, output: str) -> None:
    print(f"{'ok' if holds else 'FAILED'}: {what}")
    if not holds:
        sys.exit(f"output:\n{output}")


def main(mpi: str, nodes: int, program: str) -> None:
    if not (MPIS / mpi / ".done").exists():
        print(f"{mpi} is missing; tools/setup.sh --dev installs it")
        sys.exit(1 if "mpi" in os.environ.get("TARANTELLA_NEEDS", "").split(",") else 77)
    before = set(SHM.iterdir())
    code, output, seconds = start(mpi, nodes, program)
    print(output)
    check(f"the rules, in {seconds:.1f} s", code == 0 and "FAILED" not in output and "closed in" in output, output)
    for word, what in LIVES.items():
        _, output, _ = start(mpi, nodes, program, word)
        times = [float(each) for each in re.findall(r"closed in ([\d.e-]+) s", output)]
        print(output)
        check(f"close() beside {what}, in {times} s", len(times) == nodes - 1 and max(times) < 3, output)
    code, output, _ = start(mpi, nodes, program, "other")
    check("another number of nodes", f"MPI has started {nodes} processes, not {nodes + 1}" in output, output)
    code, output, _ = start(mpi, nodes, program, "absent")
    said = [output.count(each) for each in ("MPI did not start on machine ", "for the other machines to start MPI")]
    all_said = said == [nodes - 1, 2 * (nodes - 1)]
    check(f"a node that does not start MPI, exit code {code}", all_said and code == 0, output)
    left = [each.name for each in set(SHM.iterdir()) - before]
    check(
        f"nothing of MPI is left in /dev/shm: {left}", not any("mpi" in name or "sm_seg" in name for name in left), ""
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
