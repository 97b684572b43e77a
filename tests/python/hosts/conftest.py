"""Several hosts on this machine, made once for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import mpi_folder


@pytest.fixture
def hosts(all_hosts, tmp_path: Path) -> Iterator:
    all_hosts.use(tmp_path)
    yield all_hosts
    all_hosts.mend()
    assert all_hosts.end_all() == [], "the job left processes behind"
    records = [*tmp_path.glob("tarantella/*")]
    assert records == [], "the job left its records behind"


@pytest.fixture
def open_mpi_starter(hosts, tmp_path_factory) -> dict[str, str]:
    """Variables with which Open MPI reaches the other hosts."""
    session = tmp_path_factory.mktemp("session")
    return {
        "PRTE_MCA_plm_ssh_agent": str(hosts.folder / "shell"),
        "PRTE_MCA_prte_tmpdir_base": str(session),  # named after a process, whose number two hosts may have
    }


@pytest.fixture
def open_mpi(open_mpi_starter) -> dict[str, str]:
    """Variables with which the launcher starts a job with Open MPI."""
    folder = mpi_folder("openmpi", "Open MPI")
    return {**open_mpi_starter, "TNT_TRANSPORT": "openmpi", "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


@pytest.fixture
def intel_mpi(hosts) -> dict[str, str]:
    """Variables with which the launcher starts a job with Intel MPI."""
    folder = mpi_folder("impi-rt", "Intel MPI")
    return {
        "TNT_TRANSPORT": f"mpi-abi:{folder}/lib/libmpi_abi.so.1",
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": str(hosts.folder / "shell"),
    }


@pytest.fixture
def mpich() -> dict[str, str]:
    """The launcher starts a job with MPICH by itself."""
    return {}


@pytest.fixture(params=["mpich", "open_mpi"])
def mpi(request: pytest.FixtureRequest) -> dict[str, str]:
    """Variables with which the launcher starts a job with this MPI; a test may name others (indirect=True)."""
    return request.getfixturevalue(request.param)
