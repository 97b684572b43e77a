"""The benchmarks run and give well-formed results. Speed is not tested."""

import pytest


@pytest.fixture
def allreduce(bench):
    """The driver as a module."""
    return bench("allreduce")


@pytest.fixture
def cost(bench):
    """The driver as a module."""
    return bench("cost")


def test_the_allreduce_is_measured_and_right(benchmark_run):
    sizes, rounds = [4, 16384], 2
    options = ["--libraries", "tarantella", "--sizes", *sizes, "--rounds", rounds]
    result, _ = benchmark_run("allreduce.py", *options)
    measured = [(row["row"], row["bytes"], row["round"]) for row in result["rows"]]
    names = ["tarantella private", "tarantella region"]
    assert measured == [(name, size, number + 1) for number in range(rounds) for name in names for size in sizes]
    assert all(row["correct"] and 0 < row["minimum"] <= row["median"] <= row["maximum"] for row in result["rows"])
    assert [goal["minimum"]["met"] for goal in result["goals"]] == [None, None, None]  # nobody to compare with


def test_more_ranks_than_cores_are_measured_and_right(benchmark_run):
    options = ["--libraries", "tarantella", "--sizes", 4, 16384, "--rounds", 1, "--ranks", 4]
    result, _ = benchmark_run("allreduce.py", *options)
    assert len(result["rows"]) == 4 and all(row["correct"] for row in result["rows"])
    assert [goal["goal"] for goal in result["goals"]] == ["private buffers ahead of every MPI at every size"]


def test_rounds_become_the_extremes_and_the_median_of_medians(allreduce):
    rounds = [(1.0, 9.0, 9.0), (3.0, 4.0, 20.0), (2.0, 5.0, 7.0)]
    kinds = ("minimum", "median", "maximum")
    rows = [{"row": "mpich", "bytes": 4, **dict(zip(kinds, each, strict=True))} for each in rounds]
    assert allreduce.summarize(rows) == {"mpich": {4: {"minimum": 1.0, "median": 5.0, "maximum": 20.0}}}


def test_goals_compare_with_the_best_mpi_at_each_size(allreduce):
    size = 65536
    times = {
        "mpich": 9.0,
        "openmpi": 4.0,
        "impi": 6.0,
        "tarantella private": 3.0,
        "tarantella region": 2.5,
        "vllm": 2.9,
    }
    summary = {name: {size: {"minimum": time, "median": 2 * time}} for name, time in times.items()}
    private, level, region = allreduce.judge(summary, [size])
    assert private["minimum"] == {"met": True, "missed": {}}
    assert level["median"] == {"met": True, "missed": {}}  # 0.967 counts as level
    assert region["median"] == {"met": False, "missed": {str(size): 1.6}}


def test_a_goal_is_open_while_an_mpi_is_missing(allreduce):
    times = {"mpich": 9.0, "impi": 6.0, "tarantella private": 3.0}
    summary = {name: {4: {"minimum": time, "median": time}} for name, time in times.items()}
    private, *_ = allreduce.judge(summary, [4])
    assert private["missing"] == ["openmpi"]
    assert private["minimum"]["met"] is None


@pytest.mark.extended
def test_the_costs_are_measured(benchmark_run):
    options = ["--infer", "lenet5", "--train", "lenet5", "--steps", 20, "--epochs", 3, "--calls", 2]
    costs = benchmark_run("cost.py", *options, "--rounds", 1)[0]["costs"]
    assert [cost["cost"] for cost in costs] == ["evaluate", "predict", "weights", "metrics"]
    assert all(value > 0 for cost in costs for name, value in cost["parts"].items() if name != "us in every step")


def test_a_comparison_costs_what_the_last_rank_takes_of_the_slower_ranks_steps(cost):
    ranks = [
        {"steps": [0.4, 0.5, 0.6], "count": 0.0, "compare": [0.5, 0.1], "interval": [300, 100], "at end": [0.2]},
        {"steps": [0.3, 0.4, 0.5], "count": 0.001, "compare": [0.3, 0.9], "interval": [300, 100], "at end": [0.2]},
    ]
    assert cost.weights(ranks)["share"] == pytest.approx((0.001 + (0.3 + 0.1) / 400) / 0.5)


def test_an_exchange_of_metrics_is_spread_over_the_steps_of_an_epoch(cost):
    ranks = [
        {"steps": [0.5, 0.5], "update": 0.001, "combine": [3.0, 0.4]},
        {"steps": [0.4, 0.4], "update": 0.002, "combine": [0.2, 5.0]},
    ]
    assert cost.metrics(ranks, 100)["share"] == pytest.approx((0.002 + 0.3 / 100) / 0.5)
