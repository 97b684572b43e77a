"""bench/hosts.py judges what it measured as its goals say. All numbers are made up."""

import pytest

LARGE = 1 << 20


def a_round(times, link="unlimited", mpi="mpich", **parts):
    """A round in which rows took these microseconds for LARGE bytes."""
    sums = [{"link": link, "mpi": mpi, "row": row, "bytes": LARGE, "median": each} for row, each in times.items()]
    return {"sums": sums, **parts}


@pytest.fixture
def ratios(bench):
    return bench("hosts_ratios")


def test_a_sum_is_compared_with_that_of_the_same_mpi_in_the_same_round(ratios):
    rounds = [a_round({"Tarantella": ours, "MPI_Allreduce": theirs}) for ours, theirs in ((10, 9), (20, 20), (5, 6))]
    for each in rounds:
        each["sums"] += a_round({"MPI_Allreduce": 1.0}, mpi="openmpi")["sums"]
    (line,) = ratios.ratios(rounds)
    assert line["rounds"] == pytest.approx([0.9, 1.0, 1.2])
    assert (line["worst"], line["median"], line["best"]) == pytest.approx((0.9, 1.0, 1.2))
    assert line["met"] is True


def test_gradients_have_their_goal_beside_the_sum_into_other_memory(ratios):
    times = {"Tarantella, gradients": 10.0, "MPI_Allreduce": 8.0, "MPI_Allreduce, out of place": 12.0}
    like, in_place = ratios.ratios([a_round(times)])
    assert (like["rival"], like["median"], like["met"]) == ("MPI_Allreduce, out of place", pytest.approx(1.2), True)
    assert (in_place["rival"], in_place["median"], in_place["met"]) == ("MPI_Allreduce", pytest.approx(0.8), None)


@pytest.mark.parametrize(("size", "met"), [(16384, None), (65536, False)])
def test_there_are_goals_from_64_kib_on(ratios, size, met):
    measured = a_round({"Tarantella": 10.0, "MPI_Allreduce": 9.0})
    for row in measured["sums"]:
        row["bytes"] = size
    assert ratios.ratios([measured])[0]["met"] is met


def test_a_step_is_a_share_of_the_silent_one_and_a_start_is_seconds_more(ratios):
    seconds = {"training": {"ours": 0.1, "alone": 0.095}, "start": {"ours": 9.5, "alone": 8.0}}
    step, start = ratios.ratios([a_round({}, **seconds)])
    assert (step["median"], step["met"]) == (pytest.approx(0.95), True)
    assert (start["median"], start["met"]) == (pytest.approx(1.5), False)
    assert ratios.text([step, start]).count("MISSED") == 1


def test_the_slowest_process_counts(ratios):
    outputs = [{"step": [1.0, 3.0], "start": [9.0]}, {"step": [2.5, 2.5], "start": [9.0]}]
    assert ratios.slowest(outputs, "step") == 2.5
