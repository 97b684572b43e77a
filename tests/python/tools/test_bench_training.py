"""bench/training.py judges what it measured as its goals say. All numbers are made up."""

import argparse
import json
import re

import pytest

SILENT = ("silent", "silent, again")


def a_round(steps, net="lenet5", strangers=0.0):
    """A round in which rows took these milliseconds a step."""
    measured = {row: {"step": [each / 1e3]} for row, each in steps.items()}
    return {"strangers": strangers, "measured": {net: measured}}


def a_run(*rounds):
    """Rounds of the fastest silent row's and of two ranks' milliseconds; the other silent row takes 1 ms more."""
    return [a_round({"silent": least + 1, "silent, again": least, "2 ranks": ranks}) for least, ranks in rounds]


def steps_of_ranks(bench):
    return [ratio for ratio in bench("rows").RATIOS if (ratio.what, ratio.net) == ("steps of 2 ranks", "lenet5")]


def test_ranks_are_compared_with_the_fastest_silent_row_of_the_same_round(bench):
    (line,) = bench("judge").judge(a_run((9.0, 10.0), (19.0, 20.0), (4.9, 5.0)), steps_of_ranks(bench))
    assert line["rounds"] == pytest.approx([0.9, 0.95, 0.98])
    assert (line["worst"], line["median"], line["best"]) == pytest.approx((0.9, 0.95, 0.98))


def in_turns(bench, **steps):
    """The ratio of two ranks in a round in which rows took these milliseconds a step, turn by turn."""
    measured = {
        row: {"step": [each / 1e3 for each in turns]}
        for row, turns in zip((*SILENT, "2 ranks"), steps.values(), strict=True)
    }
    (line,) = bench("judge").judge(
        [{"strangers": 0.0, "turns": True, "measured": {"lenet5": measured}}], steps_of_ranks(bench)
    )
    return line["median"]


def test_a_machine_that_gets_slower_changes_no_ratio_of_rows_that_take_turns(bench):
    speed = [1, 1, 3, 2, 5]  # of the machine, from cycle to cycle
    rows = {"silent": 10, "alike": 9, "ranks": 10}
    steady = {row: [each] * len(speed) for row, each in rows.items()}
    drifts = {row: [each * factor for factor in speed] for row, each in rows.items()}
    assert in_turns(bench, **steady) == pytest.approx(0.9) and in_turns(bench, **drifts) == pytest.approx(0.9)


def test_a_turn_that_was_disturbed_does_not_count(bench):
    rows = {"silent": [10, 10, 10], "alike": [9, 40, 9], "ranks": [10, 10, 70]}
    assert in_turns(bench, **rows) == pytest.approx(0.9)


def test_what_takes_no_turns_is_compared_as_it_is(bench):
    rows = bench("rows")
    plain, ranks = (rows.named(name) for name in ("2 plain, started", "2 ranks, started"))
    assert rows.named("-n 1").in_turns("lenet5") == ("step", "calls") and rows.named("-n 1").in_turns("resnet20") == ()
    assert not plain.takes_turns("lenet5", "start") and not ranks.takes_turns("lenet5", "start")
    (ratio,) = (each for each in rows.RATIOS if each.row == ranks.name)
    measured = {plain.name: {"start": [2.0]}, ranks.name: {"start": [4.0]}}
    assert bench("judge").in_round(ratio, {"turns": True, "measured": {"lenet5": measured}}) == 2.0


def test_a_turn_of_ranks_has_what_lies_between_epochs_and_one_of_plain_keras_has_not(bench, monkeypatch):
    worker = bench("train_worker")
    now = [0.0]
    monkeypatch.setattr(worker.time, "perf_counter", lambda: now[0])

    def seconds_of_a_step(clock):
        for epoch in range(4):
            for batch, step in enumerate((3.0, 1.0, 1.0)):
                now[0] += step
                if isinstance(clock, worker.PlainClock):
                    clock.on_train_batch_end(batch)
            now[0] += 1.0
            clock.on_epoch_end(epoch)
        return clock.steps

    taken = []
    assert seconds_of_a_step(worker.Clock(3)) == [2.0, 2.0, 2.0]
    assert seconds_of_a_step(worker.PlainClock(3, 1, 2, lambda: taken.append(now[0]))) == [1.0, 1.0, 1.0]
    assert [each - taken[0] for each in taken] == [0.0, 6.0]


def test_the_slowest_process_is_that_with_the_longest_median(bench):
    disturbed, slower = {"step": [1.0, 9.0, 1.0]}, {"step": [2.0, 2.0, 2.0]}
    assert bench("judge").slowest([disturbed, slower]) == slower
    assert bench("judge").slowest([{"copy": [4.0]}, {"copy": [5.0]}], largest=False) == {"copy": [4.0]}


@pytest.mark.parametrize(
    ("ranks", "met"),
    [((10.0, 10.1, 10.2), True), ((10.0, 10.5, 10.6), False), ((10.0, 10.1, 10.9), False)],
    ids=["both", "the median is below its goal", "the worst round is below its limit"],
)
def test_a_goal_holds_for_the_median_and_its_limit_for_every_round(bench, ranks, met):
    (line,) = bench("judge").judge(a_run(*((10.0, each) for each in ranks)), steps_of_ranks(bench))
    assert line["met"] is met


def test_the_worst_of_a_cost_is_the_largest(bench):
    rows, judge = bench("rows"), bench("judge")
    ratio = rows.Ratio("fit", "lenet5", "step", "2 ranks", ("silent",), "times", 1.3)
    run = [a_round({"silent": 10, "2 ranks": each}) for each in (10, 12, 20)]
    (line,) = judge.judge(run, [ratio])
    assert (line["best"], line["median"], line["worst"]) == pytest.approx((1.0, 1.2, 2.0))
    assert line["met"] is True


def test_memory_is_what_a_rank_has_more_over_its_gradients(bench):
    rows, judge = bench("rows"), bench("judge")
    (ratio,) = (ratio for ratio in rows.RATIOS if ratio.what == "memory of 4 ranks")
    memory = {"4 ranks, weighed": 10 * rows.MLP_BYTES, "4 silent, weighed": 4 * rows.MLP_BYTES}
    run = [{"strangers": 0, "measured": {"mlp": {row: {"memory": [each]} for row, each in memory.items()}}}]
    assert judge.judge(run, [ratio])[0]["median"] == pytest.approx(1.5)


def test_a_ratio_is_left_out_unless_all_of_its_rows_were_measured(bench):
    run = a_run((9.0, 10.0), (9.0, 10.0))
    del run[1]["measured"]["lenet5"]["silent, again"]
    assert bench("judge").judge(run, steps_of_ranks(bench)) == []


def test_every_ratio_compares_rows_that_measure_its_subject(bench):
    rows = bench("rows")
    by_name = {row.name: row for row in rows.ROWS}
    subject_of = {"step": "steps", "start": "start", "memory": "memory"}
    for ratio in rows.RATIOS:
        subject = "epochs" if ratio.subject.startswith("epoch") else subject_of.get(ratio.subject, "calls")
        for name in (ratio.row, *ratio.against):
            assert subject in by_name[name].subjects(ratio.net), (ratio, name)


def quiet_run(bench, rounds):
    """A run in which every row of every network took as long in each round."""
    rows = bench("rows")
    subjects = ["step", "fit", "evaluate", "predict", "fit of a dataset", "start", "memory", "copy"]
    numbers = {key: [1.0] for key in (*subjects, *(f"epoch of {steps}" for steps in rows.SHORT))}
    nets = {net: {row.name: dict(numbers) for row in rows.ROWS} for net in rows.NETS}
    return [json.loads(json.dumps({"strangers": 0.001, "measured": nets})) for _ in range(rounds)]


def test_a_run_counts_if_its_silent_rows_agree_and_nobody_else_was_there(bench):
    assert bench("judge").noise(quiet_run(bench, 3)) == []


def test_a_round_with_strangers_makes_a_run_noisy(bench):
    run = quiet_run(bench, 3)
    run[1]["strangers"] = 0.021
    assert bench("judge").noise(run) == ["round 2: others used 2.1% of the CPU (allowed: 2%)"]


@pytest.mark.parametrize("row", SILENT)
def test_a_silent_row_that_differs_between_rounds_makes_a_run_noisy(bench, row):
    run = quiet_run(bench, 3)
    run[2]["measured"]["mlp"][row]["step"] = [1.031]
    (reason,) = bench("judge").noise(run)
    assert re.fullmatch(r"mlp: the ratio of the silent rows spreads by 3\.\d% \(allowed: below 3%\)", reason)


def test_a_machine_that_gets_slower_is_not_noisy(bench):
    run = quiet_run(bench, 3)
    for row in SILENT:
        run[2]["measured"]["mlp"][row]["step"] = [2.0]
    assert bench("judge").noise(run) == []


def test_other_rows_may_differ_between_rounds(bench):
    run = quiet_run(bench, 3)
    run[2]["measured"]["mlp"]["2 ranks"]["step"] = [2.0]
    run[2]["measured"]["mlp"]["silent in lockstep"]["step"] = [2.0]
    assert bench("judge").noise(run) == []


def test_a_single_round_or_a_part_of_the_rows_does_not_count(bench):
    run = quiet_run(bench, 1)
    assert bench("judge").noise(run) == ["a single round does not show whether the silent rows agree"]
    run = quiet_run(bench, 2)
    for each in run:
        del each["measured"]["mlp"]["4 ranks, weighed"]
    (reason,) = bench("judge").noise(run)
    assert reason.startswith("only ")


def line(numbers, kind="share"):
    middle = sorted(numbers)[len(numbers) // 2]
    return {
        "net": "mlp",
        "what": "steps",
        "kind": kind,
        "minimum": min(numbers),
        "median": middle,
        "maximum": max(numbers),
    }


@pytest.mark.parametrize(
    ("kind", "old", "new", "count"),
    [
        ("share", [0.95, 0.96, 0.97], [0.85, 0.86, 0.87], 1),
        ("share", [0.85, 0.86, 0.87], [0.95, 0.96, 0.97], 0),
        ("times", [1.1, 1.2, 1.3], [1.4, 1.5, 1.6], 1),
        ("times", [1.4, 1.5, 1.6], [1.1, 1.2, 1.3], 0),
        ("share", [0.90, 0.96, 0.97], [0.85, 0.86, 0.91], 0),
        ("share", [0.96], [0.95], 0),
        ("extra", [2.0], [2.5], 1),
    ],
    ids=["less of a share", "more of it", "more times", "fewer", "rounds overlap", "one round, close", "more memory"],
)
def test_slower_is_what_lies_beyond_all_rounds_of_both_runs(bench, kind, old, new, count):
    assert len(bench("judge").slower([line(old, kind)], [line(new, kind)])) == count


def test_a_new_ratio_is_not_slower(bench):
    assert bench("judge").slower([], [line([0.5])]) == []


def test_a_result_is_compared_with_an_older_file(bench, tmp_path, monkeypatch, capsys):
    def written(name, milliseconds):
        run = quiet_run(bench, 3)
        for each in run:
            each["measured"]["mlp"]["2 ranks"]["step"] = [milliseconds / 1e3]
        result = {"rounds": run, "tiny": False, "ratios": bench("judge").judge(run), "noise": []}
        (tmp_path / name).write_text(json.dumps(result))
        return str(tmp_path / name)

    def said(new, old):
        monkeypatch.setattr("sys.argv", ["training.py", "--read", new, "--compare", old])
        bench("training").main()
        return capsys.readouterr().out.partition(f"\nslower than {old}:\n")[2].splitlines()

    old, new = written("old.json", 1000), written("new.json", 1100)
    slower = said(new, old)
    assert "mlp, steps of 2 ranks: 1.000 before, 0.909 now" in slower
    assert all(line.startswith("mlp, ") for line in slower)
    assert said(old, new) == said(old, old) == ["nothing"]


def test_the_floor_adds_the_bytes_of_the_exchange_to_a_silent_step(bench):
    floor = bench("floor")
    # of 100 MB: half is read and written, all is read for the sums of one half
    moved = floor.moved(100e6, 2)
    assert moved == pytest.approx({"copy in": 100e6, "sums": 150e6})
    found = floor.floor(silent=0.1, ranks=0.15, gradients=100e6, size=2, bandwidth=10e9)
    assert found == pytest.approx({"seconds": 0.125, "share of silent": 0.8, "reached": 0.125 / 0.15})


def test_more_ranks_copy_more_and_sum_less_of_the_gradients(bench):
    moved = bench("floor").moved
    assert moved(1, 1)["copy in"] == 0
    assert moved(1, 4) == pytest.approx({"copy in": 1.5, "sums": 1.25})


def test_the_table_for_the_readme_has_the_ratios_with_goals(bench):
    judge, rows, tables = bench("judge"), bench("rows"), bench("tables")
    run = quiet_run(bench, 2)
    machine = {"processor": "Some CPU", "cores": 2, "date": "2030-01-02T03:04"}
    floor = judge.mlp_floor(run)
    text = tables.markdown({"machine": machine, "rounds": run, "ratios": judge.judge(run), "floor": floor})
    assert text.splitlines()[0] == "Some CPU, 2 cores, 2030-01-02; 2 rounds."
    assert "| lenet5 | steps of 2 ranks | 1.000 | 1.000 | 1.000 | >= 0.97 (0.94) |" in text
    assert text.count("\n| ") == 1 + sum(ratio.goal is not None for ratio in rows.RATIOS)
    assert "lockstep" not in text


@pytest.mark.parametrize(("minutes", "count"), [(30, 5), (14, 3), (1, 1)])
def test_a_slow_machine_has_fewer_rounds(bench, monkeypatch, minutes, count):
    training, now = bench("training"), [0.0]

    def one_round(number, options):
        now[0] += 270 + number
        return {"seconds": 270 + number}

    monkeypatch.setattr(training, "one_round", one_round)
    monkeypatch.setattr(training.time, "monotonic", lambda: now[0])
    assert len(training.all_rounds(argparse.Namespace(rounds=5, minutes=minutes))) == count


def test_the_page_shows_a_run(bench):
    pytest.importorskip("matplotlib")
    judge, run = bench("judge"), quiet_run(bench, 2)
    origin = dict.fromkeys(("date", "processor", "memory", "system"), "?") | {"cores": 2, "load": 0.0}
    result = {"machine": origin, "versions": {}, "rounds": run, "ratios": judge.judge(run), "noise": ["<a reason>"]}
    text = bench("report_training").training({**result, "floor": judge.mlp_floor(run)})
    assert "&lt;a reason&gt;" in text
    assert text.count("<svg") == 3
