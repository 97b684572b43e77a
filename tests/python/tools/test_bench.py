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
    assert measured == [("tarantella", size, number + 1) for number in range(rounds) for size in sizes]
    assert all(row["correct"] and 0 < row["minimum"] <= row["median"] <= row["maximum"] for row in result["rows"])
    assert [goal["minimum"]["met"] for goal in result["goals"][:2]] == [None, None]  # nobody to compare with
    assert [goal["maximum"]["met"] in (True, False) for goal in result["goals"][2:]] == [True]


def test_more_ranks_than_cores_are_measured_and_right(benchmark_run):
    options = ["--libraries", "tarantella", "--sizes", 4, 16384, "--rounds", 1, "--ranks", 4]
    result, _ = benchmark_run("allreduce.py", *options)
    assert len(result["rows"]) == 2 and all(row["correct"] for row in result["rows"])
    assert len(result["goals"]) == 2
    assert result["goals"][0]["goal"] == "ahead of every MPI at every size"


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
        "tarantella": 3.0,
        "vllm": 2.9,
    }
    kinds = {"minimum": 1, "median": 2, "maximum": 30_000}
    summary = {name: {size: {kind: each * time for kind, each in kinds.items()}} for name, time in times.items()}
    ahead, level, calm = allreduce.judge(summary, [size])
    assert calm["maximum"] == {"met": True, "missed": {}}  # 90 ms
    summary["tarantella"][size]["maximum"] = 120_000
    assert allreduce.judge(summary, [size])[-1]["maximum"] == {"met": False, "missed": {str(size): 120.0}}
    assert ahead["minimum"] == {"met": True, "missed": {}}
    assert level["median"] == {"met": True, "missed": {}}  # 0.967 counts as level


def test_rounds_are_compared_with_the_best_mpi_of_the_same_round(allreduce):
    times = {"tarantella": (1, 2, 4), "mpich": (3, 2, 9), "impi": (2, 3, 10)}
    rows = [
        {"row": name, "bytes": 4, "round": number, "median": float(each)}
        for name, rounds in times.items()
        for number, each in enumerate(rounds)
    ]
    assert allreduce.in_rounds(rows, "tarantella", 4) == [2, 1, 2.25]
    assert allreduce.markdown(rows, [4, 16]).splitlines()[2:] == ["| 4 | 2.00 (1.00) |", "| 16 |  |"]


def test_an_mpi_that_made_few_calls_has_a_goal_of_its_own(allreduce):
    times = {"mpich": [9.0], "openmpi": [4.0, 4.0], "impi": [6.0, 6.0], "tarantella": [3.0, 5.0]}
    summary = {
        name: {size: dict.fromkeys(allreduce.KINDS, time) for size, time in zip((4, 65536), each, strict=False)}
        for name, each in times.items()
    }
    whole, part, *_ = allreduce.judge(summary, [4, 65536], 4)
    assert whole["goal"] == "ahead of openmpi and impi at every size"
    assert whole["median"] == {"met": False, "missed": {"65536": 0.8}}
    assert part["goal"] == "ahead of mpich up to 4 bytes, where it makes few calls"
    assert part["median"] == {"met": True, "missed": {}}


def test_a_goal_is_open_while_an_mpi_is_missing(allreduce):
    times = {"mpich": 9.0, "impi": 6.0, "tarantella": 3.0}
    summary = {name: {4: {"minimum": time, "median": time}} for name, time in times.items()}
    private, *_ = allreduce.judge(summary, [4])
    assert private["missing"] == ["openmpi"]
    assert private["minimum"]["met"] is None


@pytest.mark.extended
def test_the_costs_are_measured(benchmark_run):
    nets = ["--infer", "lenet5", "--arrays", "lenet5", "--train", "lenet5"]
    costs = benchmark_run("cost.py", *nets, "--steps", 20, "--epochs", 3, "--calls", 2, "--rounds", 1)[0]["costs"]
    assert [cost["cost"] for cost in costs] == ["evaluate", "predict", "arrays", "weights", "metrics"]
    assert all(value > 0 for cost in costs for name, value in cost["parts"].items() if name != "us in every step")


def test_a_comparison_costs_what_the_last_rank_takes_of_the_slower_ranks_steps(cost):
    ranks = [
        {"steps": [0.4, 0.5, 0.6], "count": 0.0, "compare": [0.5, 0.1], "interval": 100},
        {"steps": [0.3, 0.4, 0.5], "count": 0.001, "compare": [0.3, 0.9], "interval": 100},
    ]
    assert cost.weights(ranks)["share"] == pytest.approx((0.001 + 0.2 / 100) / 0.5)


def test_the_slowest_check_of_arrays_is_compared_with_the_slower_ranks_epoch(cost):
    ranks = [{"steps": [0.5], "check": [3.0]}, {"steps": [0.4], "check": [4.0]}]
    assert cost.arrays(ranks, 100) == pytest.approx({"share": 0.08, "s an epoch": 50, "ms to check": 4000})


def test_an_exchange_of_metrics_is_spread_over_the_steps_of_an_epoch(cost):
    ranks = [
        {"steps": [0.5, 0.5], "update": 0.001, "combine": [3.0, 0.4]},
        {"steps": [0.4, 0.4], "update": 0.002, "combine": [0.2, 5.0]},
    ]
    assert cost.metrics(ranks, 100)["share"] == pytest.approx((0.002 + 0.3 / 100) / 0.5)


def test_the_table_of_the_readme_is_printed(benchmark_run, tmp_path):
    options = ["--tiny", "--nets", "lenet5", "--ways", "keras", "tarantella", "--picture", tmp_path / "picture.svg"]
    result, said = benchmark_run("speedups.py", *options)
    assert set(result["nets"]["lenet5"]["rates"]) == {"keras", "tarantella"}
    assert result["losses"]["1"] == pytest.approx(result["losses"]["4"], rel=1e-4)
    head = "| network | plain Keras | Tarantella, 2 ranks | Tarantella, 2 hosts | MultiWorkerMirroredStrategy |"
    assert head in said and "| LeNet-5 | " in said
    assert "4 ranks of Tarantella" in (tmp_path / "picture.svg").read_text(encoding="utf-8")


def test_speedups_are_of_the_plain_process_of_the_same_framework(bench):
    speedups = bench("speedups")
    rates = {"keras": 100.0, "tarantella": 150.0, "torch": 50.0, "ddp": 60.0}
    assert [speedups.speedup(rates, way) for way in speedups.WAYS] == [1.5, None, None, 1.2]
