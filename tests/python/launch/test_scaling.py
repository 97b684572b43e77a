"""`tarantella scaling`: the figures of made timelines, computed by hand, the table, the page, and one real run."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarantella import _machine
from tarantella.scaling import __main__ as command
from tarantella.scaling import advice, measure, page, runs, table, trace
from tarantella.scaling.measure import NO_FIT, Measured, measured, problem

SVG = "{http://www.w3.org/2000/svg}"
HTML = "{http://www.w3.org/1999/xhtml}"


def span(kind, name, begin, end, rank=0, track=1):
    return {"ph": "X", "cat": kind, "name": name, "pid": rank, "tid": track, "ts": 1e6 * begin,
            "dur": 1e6 * (end - begin)}  # fmt: skip


def batch(time, rows, rank=0):
    return {"ph": "i", "cat": "batch", "name": "batch", "pid": rank, "tid": 0, "ts": 1e6 * time, "args": {"rows": rows}}


def awaited_batch(since, time, rows, rank=0):
    return {**span("batch", "await batch", since, time, rank, track=0), "args": {"rows": rows}}


def bucket(number, begin, full, met, summed, end, rank=0):
    track = 1_000_001 + number
    yield span("bucket", f"bucket {number}", begin, end, rank, track)
    yield span("fill", "fill", begin, full, rank, track)
    yield span("wait", "wait for gradients of other ranks", full, met, rank, track)
    yield span("sum", "sum a slice", met, summed, rank, track)
    yield span("wait", "wait for slices of other ranks", summed, end, rank, track)


def made_rank(rank, exchange):
    """One call of fit with a first epoch of 3 s and a second one of 4 s, and 2 steps in each."""
    yield {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank} on host"}}
    yield span("call", "fit", 0, 9, rank)
    yield span("part", "epoch 1", 1, 4, rank)
    yield batch(0.5, 3, rank)  # of a trial before training
    for begin, end in ((1, 2), (2, 4), (4, 5.5), (5.5, 7)):
        yield span("step", "train step", begin, end, rank)
        yield batch(begin + 0.5, 8, rank)
    yield span("part", "epoch 2", 4, 8, rank)
    # the rank still computes while bucket 0 is met and summed, until the last gradient, that of bucket 1
    for offset in (-3, -2):
        yield from bucket(0, 4.6 + offset, 4.7 + offset, 4.7 + offset, 4.8 + offset, 4.8 + offset, rank)
        yield from bucket(1, 4.7 + offset, 4.8 + offset, 4.8 + offset, 4.8 + offset, 4.8 + offset, rank)
    yield from bucket(0, 4.6, 4.8, 4.9, 5.0, 5.1, rank)
    yield from bucket(1, 4.9, 5.0, 5.2, 5.25, 5.3, rank)
    yield from bucket(0, 6.2, 6.5, 6.5, 6.6, 6.6, rank)
    yield from bucket(1, 6.5, 6.7, 6.7, 6.75, 6.8, rank)
    yield span("exchange", "metrics", *exchange, rank)
    yield span("exchange", "elsewhere", 4, 8, rank, track=2)  # of another thread


@pytest.fixture
def made(tmp_path):
    events = [*made_rank(0, (7.0, 7.4)), *made_rank(1, (7.3, 7.4))]
    return read(tmp_path, events).ranks


def read(folder, events, **more):
    (folder / "t.json").write_text(json.dumps({"traceEvents": events, **more}))
    return trace.read(folder / "t.json")


def test_the_shares_of_a_made_timeline_are_those_computed_by_hand(made):
    """Of the 4 s of the second epoch, in seconds: see `made_rank`."""
    first, second = measured(made).shares
    # bucket 0 from the last gradient (5.0) on: sums until 5.1; bucket 1: met at 5.2, summed until 5.3 and 6.8
    communication, waiting, begun = 0.1 + 0.1 + 0.1, 0.1, 0.5 + 0.5
    compute = 3 - communication - waiting - begun
    expected = (compute, begun, communication + 0.1, waiting + 0.3, 0.6)
    assert [first[kind] for kind in measure.KINDS] == pytest.approx([each / 4 for each in expected])
    expected = (compute, begun, communication + 0.1, waiting, 0.9)  # the last rank waits for nobody
    assert [second[kind] for kind in measure.KINDS] == pytest.approx([each / 4 for each in expected])


def test_input_is_the_time_from_the_begin_of_a_step_to_its_batch(tmp_path):
    events = [span("call", "fit", 0, 4), span("part", "epoch 1", 0, 4)]
    events += [span("step", "train step", 0, 1), awaited_batch(0, 0.75, 8)]
    events += [span("step", "train step", 2, 3), awaited_batch(2, 2.25, 8)]
    rank = read(tmp_path, events).ranks[0]
    assert [each.rows for each in rank.batches] == [8, 8]
    assert measured([rank]).shares[0][measure.INPUT] == pytest.approx((0.75 + 0.25) / 4)


def test_the_figures_of_a_made_timeline(made):
    found = measured(made)
    assert (found.fit, found.first, found.later) == pytest.approx((9, 4, 4))
    assert (found.rows, found.later_rows, found.batch, found.steady) == (64, 32, 16, True)
    assert found.share(measure.COMPUTE) == pytest.approx(1.6 / 4)
    for rank in made:
        rank.epochs = rank.epochs[:1]
    whole = measured(made)
    assert (whole.later, whole.steady) == (None, False)
    assert sum(whole.shares[0].values()) == pytest.approx(1)


def test_what_a_full_timeline_has_lost_is_left_out(made):
    for rank in made:
        rank.last = 6.0
        rank.exchanges.clear()
    found = measured(made, complete=False)
    assert (found.rows, found.batch) == (None, 16)
    assert found.shares[0][measure.BETWEEN] == pytest.approx(0)
    assert sum(found.shares[0].values()) == pytest.approx(1)
    for rank in made:
        rank.last = 3.0  # in the first epoch
    found = measured(made, complete=False)
    assert not found.steady
    assert found.share(measure.COMPUTE) > 0


def test_a_job_of_which_not_all_ranks_have_trained_has_no_figures(made):
    assert problem(made, 2) == ""
    assert problem(made, 3) == "rank 2 has not trained in fit of a tarantella.Model"
    made[1].steps.clear()
    assert problem(made, 2) == "rank 1 has not trained in fit of a tarantella.Model"
    made[0].fits.clear()
    assert problem(made, 2) == problem([], 2) == NO_FIT


def test_a_timeline_that_is_full_does_not_tell_the_time_of_several_calls(tmp_path):
    """Those that it has lost would make the ranks with the most events look quick."""
    fits = [
        each
        for number in range(3)
        for each in (
            span("call", "fit", 10 * number, 10 * number + 9),
            span("part", f"epoch {number}", 10 * number + 4, 10 * number + 9),
            span("step", "train step", 10 * number + 5, 10 * number + 6),
        )
    ]
    whole = read(tmp_path, fits)
    assert whole.complete
    assert problem(whole.ranks, 1) == ""
    found = measured(whole.ranks)
    assert (found.fit, found.first, found.later) == (27, 9, 9)  # each with the start of its call
    lost = read(tmp_path, fits, otherData={"lost": [{"rank": 0, "records": 7}]})
    assert not lost.complete
    assert "no room for all calls of fit" in problem(lost.ranks, 1, lost.complete)
    one = read(tmp_path, fits[:3], otherData={"lost": [{"rank": 0, "records": 7}]})
    assert problem(one.ranks, 1, one.complete) == ""


def test_what_a_callback_trains_is_no_epoch_of_the_model(tmp_path):
    callback = [
        span("call", "fit", 8.1, 8.9),
        span("part", "epoch 1", 8.2, 8.8),
        span("step", "train step", 8.3, 8.7),
        batch(8.4, 100),
    ]
    found = measured(read(tmp_path, [*made_rank(0, (7.0, 7.4)), *callback]).ranks)
    assert (found.first, found.later, found.rows, found.batch) == (4, 4, 32, 8)


def test_exchanges_that_ranks_do_not_make_equally_often_are_communication(made):
    made[1].exchanges.clear()
    assert measured(made).shares[0][measure.COMMUNICATION] == pytest.approx((0.3 + 0.4) / 4)


intervals = st.lists(
    st.tuples(st.floats(0, 10), st.floats(0, 3)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12
)


@given(steps=intervals, exchanges=intervals, times=st.lists(st.floats(0, 12), max_size=8), windows=intervals,
       buckets=st.lists(st.tuples(st.floats(0, 10), *[st.floats(0, 2)] * 2), max_size=6))  # fmt: skip
def test_shares_sum_to_one(steps, exchanges, times, windows, buckets):
    rank = trace.Rank(
        steps=[trace.Span(*each) for each in sorted(steps)],
        exchanges=[trace.Span(*each, "x") for each in sorted(exchanges)],
        batches=[trace.Batch(time, 1) for time in sorted(times)],
        plans={1: [[trace.Bucket(*itertools.accumulate(each)) for each in buckets]]},
    )
    for mine in measure.shares_of([rank, rank], [[trace.Span(*each) for each in windows]] * 2):
        assert sum(mine.values()) == pytest.approx(1)
        assert all(-1e-9 <= value <= 1 + 1e-9 for value in mine.values())


def figures(fit, ranks=1, rows=1000, batch=50, later=1.0, first=1.2, **more):
    mine = {**dict.fromkeys(measure.KINDS, 0.0), **more}
    mine[measure.COMPUTE] = 1 - sum(more.values())
    return Measured(fit, first, later, rows, rows and rows / 10, batch, [mine] * ranks, True)


def row(ranks, *runs_, cpus=1, crowded=False):
    good = [runs.Run(0, "", [], each) for each in runs_]
    return table.Row(ranks, cpus, crowded, good)


def test_the_table_has_speed_ups_marks_and_failures():
    failed = table.Row(4, 1, True, [runs.Run(3, "ValueError: no data", [], None)])
    rows = [
        row(1, figures(10), figures(14), figures(12)),
        row(2, figures(6, 2, later=0.6, waiting=0.25)),
        row(3, figures(6, 3, later=0.5), crowded=True),
        failed,
        row(1, figures(8), cpus=2),
    ]
    lines = table.cells(rows)
    assert lines[0] == ["1", "1", "12.00", "10.00", "14.00", "1.20", "1.00", "1.00", "1.00", "100"]
    assert lines[1] == ["2", "1", "6.00", "6.00", "6.00", "1.20", "0.60", "2.00", "1.67", "75"]
    assert lines[2][:2] == ["3*", "1"]
    assert lines[3] == ["4*", "1", "failed with exit code 3: ValueError: no data"]
    assert lines[4][7] == "1.00"  # relative to the rows with as many cores
    assert len(table.shares(rows)[1]) == 1 + 2 + 3 + 1
    text = table.text(table.HEAD, lines).splitlines()
    assert text[4].split() == ["4*", "1", *["failed", "with", "exit", "code", "3:", "ValueError:", "no", "data"]]
    assert len({len(line) for line in text[:4]}) == 1


def test_the_speed_up_of_runs_with_more_rows_compares_rows_a_second():
    rows = [row(1, figures(10)), row(2, figures(10, 2, rows=1900, batch=100))]
    assert table.speed_up(rows[1], rows) == pytest.approx(1.9)
    assert table.speed_up(rows[1], rows, later=True) == pytest.approx(1.9)
    assert "rows a second" in advice.work(rows)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ((64, 64, 63.5), "strong scaling: the global batch stays at 64 rows"),
        ((32, 64, 128), "weak scaling: a rank keeps 32 rows a step"),
        ((32, 48, 64), "neither strong nor weak scaling: the rows of the global batch are 32 on 1, 48 on 2, 64 on 4"),
        ((32, None, 64), "strong or weak scaling: not known, since batches are missing"),
        ((32,), "strong or weak scaling: only one number of ranks"),
    ],
)
def test_the_kind_of_scaling_is_measured(batches, words):
    rows = [row(ranks, figures(9, ranks, batch=each)) for ranks, each in zip((1, 2, 4), batches, strict=False)]
    assert advice.kind(rows).startswith(words)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({measure.INPUT: 0.4, measure.WAITING: 0.1}, "input limits it: 40 %"),
        ({measure.COMMUNICATION: 0.3}, "communication limits it: 30 %"),
        ({measure.WAITING: 0.3}, "waiting for other ranks limits it: 30 %"),
        ({measure.BETWEEN: 0.3}, "what happens between steps limits it: 30 %"),
        ({"first": 5.0}, "the first epoch limits it: 44 %"),
        ({"later": 0.52}, "nothing limits it: 96 %"),
        ({"later": 0.8}, "the computation itself: 62 %"),
    ],
)
def test_the_advice_names_what_limits(more, words):
    rows = [row(1, figures(10)), row(2, figures(9, 2, **more)), row(4, figures(9, 4, input=0.9), crowded=True)]
    assert advice.advice(rows).startswith(f"advice for 2 ranks x 1 cpu: {words}")


def test_the_page_is_well_formed_and_its_pictures_are_not_empty():
    failed = table.Row(4, 1, True, [runs.Run(1, "a < b & c", [], None)])
    rows = [row(1, figures(10)), row(2, figures(6, 2, later=0.6, waiting=0.25)), row(3, figures(6, 3), crowded=True)]
    text = page.page([*rows, failed], "tarantella scaling -- <x>.py", "2 cores", ["a note", "advice: none"])
    tree = ElementTree.fromstring(text)
    lines, bars = tree.iter(f"{SVG}svg")
    dashed = [each for each in lines.iter(f"{SVG}polyline") if each.get("stroke-dasharray")]
    assert len(dashed) == 2  # the ideal line and its legend
    assert len(dashed[1].get("points").split()) == 2  # rows that fit the cores
    assert len(list(lines.iter(f"{SVG}circle"))) == 6 + 1  # and in the legend
    assert len(list(bars.iter(f"{SVG}rect"))) == 1 + 5 + 6 * 5  # the ground, the legend, the bars
    assert "failed with exit code 1: a < b & c" in "".join(tree.itertext())
    assert [each.text for each in tree.iter(f"{HTML}b")] == ["advice: none"]
    assert not any(each.get("src") or each.get("href") for each in tree.iter())


def test_the_words_of_the_legend_have_room():
    picture = ElementTree.fromstring(page.share_bars([row(1, figures(10))]))
    boxes = [float(each.get("x")) for each in picture.iter(f"{SVG}rect") if each.get("y") == "6.0"]
    words = [(float(each.get("x")), each.text) for each in picture.iter(f"{SVG}text") if each.get("y") == "16.0"]
    assert [word for _, word in words] == list(measure.KINDS)
    for (begin, word), end in zip(words, [*boxes[1:], float(picture.get("width"))], strict=True):
        assert begin + 7 * len(word) < end, word


def test_numbers_of_ranks_without_room_are_left_out():
    rows = [row(2**power, figures(9, 2**power)) for power in range(8)]
    texts = ElementTree.fromstring(page.speed_ups(rows)).iter(f"{SVG}text")
    numbers = [(float(each.get("x")), each.text) for each in texts if each.get("text-anchor") == "middle"]
    shown = sorted((place, words) for place, words in numbers if words.isdigit())
    assert [words for _, words in shown] == ["4", "8", "16", "32", "64", "128"]
    for (left, words), (right, more) in itertools.pairwise(shown):
        assert left + 3.5 * len(words) < right - 3.5 * len(more)


def test_pictures_of_rows_that_all_failed_or_never_fit_have_no_ideal_line():
    failed = table.Row(1, 1, False, [runs.Run(1, "x", [], None)])
    for rows in ([failed], [row(8, figures(3, 8), crowded=True)]):
        assert "stroke-dasharray" not in page.speed_ups(rows)
        ElementTree.fromstring(page.page(rows, "c", "m", [advice.advice(rows)]))
    assert advice.advice([failed]).startswith("advice: no run has ended well")


def test_an_ideal_line_belongs_to_one_base():
    rows = [row(n, figures(8 / n, n), cpus=cpus) for n, cpus in ((1, 1), (2, 1), (4, 1), (2, 2), (4, 2))]
    assert advice.base(rows[:3]) == ""
    assert advice.base(rows) == "no fewer ranks were measured: the speed-up is relative to 2 ranks x 2 cpus"
    lines = ElementTree.fromstring(page.speed_ups(rows)).iter(f"{SVG}polyline")
    _, *ideals = [each.get("points").split() for each in lines if each.get("stroke-dasharray")]
    for points in ideals:  # each rises to the right
        places = [tuple(map(float, point.split(","))) for point in points]
        assert all(a[0] < b[0] and a[1] > b[1] for a, b in itertools.pairwise(places))
    assert sorted(map(len, ideals)) == [2, 3]


def test_a_row_of_its_own_says_nothing_of_scaling():
    rows = [row(1, figures(10)), row(4, figures(9, 4), crowded=True)]
    assert "one number of ranks does not show scaling" in advice.advice(rows)


def test_rows_that_are_not_known_are_named():
    rows = [row(1, figures(10)), row(2, figures(9, 2, rows=None)), row(4, figures(9, 4))]
    assert advice.work(rows).startswith("the rows that 2 ranks x 1 cpu trained are not known")
    assert advice.work(rows[::2]) == ""


ENDED = "tarantella: rank 1 (pid 7 on host) ended with exit code 1"
KILLED = "tarantella: rank 1 (pid 7 on host) was killed by signal 9 (SIGKILL)"
FIT = [span("call", "fit", 0, 9), span("step", "train step", 1, 2)]


@pytest.mark.parametrize(
    ("code", "said", "timeline", "failure"),
    [
        (1, f"Traceback\nValueError: no data\n\n{ENDED}\ntarantella: WARNING: x", None, "1: ValueError: no data"),
        (1, ENDED, None, f"1: {ENDED}"),
        (1, "", None, "1: no output"),
        (1, "\033[1;31mValueError\033[0m: \a\0 no < data", None, "1: ValueError:  no < data"),
        (137, f"12/60 - loss: 0.3\n{KILLED}\n{ENDED}", None, f"137: {KILLED}"),
        (0, "tarantella: WARNING: cannot write the timeline", None, "tarantella: WARNING: cannot write the timeline"),
        (0, "", None, "failed: the launcher has written no timeline"),
        (0, "", "{", "failed: its timeline cannot be read: "),
        (0, "", "{}", "failed: its timeline cannot be read: "),
        (0, "", json.dumps({"traceEvents": FIT}), "failed: rank 1 has not trained in fit"),
        (0, "", json.dumps({"traceEvents": []}), f"failed: {NO_FIT}"),
    ],
)
def test_a_run_that_measures_nothing_says_why(tmp_path, code, said, timeline, failure):
    launcher = tmp_path / "launcher"
    (tmp_path / "said").write_text(said)
    launcher.write_text(f"#!/bin/sh\ncat {tmp_path}/said\nexit {code}\n")
    if timeline is not None:
        (tmp_path / "made.json").write_text(timeline)
        launcher.write_text(f"#!/bin/sh\ncp {tmp_path}/made.json {tmp_path}/timeline.json\n")
    launcher.chmod(0o755)
    job = runs.Job(str(launcher), [], ["script.py"], tmp_path, False, _machine.usable_cores())
    run = runs.run(job, 2, 1)
    assert run.measured is None
    assert failure in run.failure
    rows = [table.Row(2, 1, False, [run])]
    ElementTree.fromstring(page.page(rows, "c", "m", [advice.advice(rows)]))


def run_made(monkeypatch, tmp_path, results, *words):
    """Runs the command with made results of runs, by number of ranks. Returns the exit code and the runs."""
    made = []

    def run(job, ranks, cpus):
        made.append((ranks, cpus))
        return results[ranks]

    monkeypatch.setattr(runs, "run", run)
    monkeypatch.setattr(runs, "refused", lambda job, ranks: 0)
    monkeypatch.setattr(_machine, "usable_cores", lambda: [[0], [1]])
    monkeypatch.chdir(tmp_path)
    return command.main("tarantella", [*words, "--", "script.py"]), made


def test_runs_are_repeated_in_turn_and_more_ranks_than_cores_are_marked(monkeypatch, tmp_path, capsys):
    results = {ranks: runs.Run(0, "", [], figures(10 / ranks, ranks)) for ranks in (1, 2, 4)}
    code, made = run_made(monkeypatch, tmp_path, results, "-n", "2,1,4", "--repeat", "2", "--cpus-per-rank", "1,2")
    assert code == 0
    assert made == [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)] * 2
    out = capsys.readouterr().out
    assert "* needs more than the 2 cores" in out and "\n   2*" in out
    assert out.count("\nadvice for ") == 1
    ElementTree.fromstring((tmp_path / "scaling.html").read_text())


def test_runs_that_differ_are_noted():
    assert not any("differ by up to" in line for line in command._notes([row(1, figures(10), figures(10.9))], 2))
    assert any("differ by up to 20 %" in line for line in command._notes([row(1, figures(10), figures(12))], 2))


def test_a_row_that_fails_is_shown_and_not_repeated(monkeypatch, tmp_path, capsys):
    results = {1: runs.Run(0, "", [], figures(10)), 2: runs.Run(9, "KeyError: 'x'", [], None)}
    code, made = run_made(monkeypatch, tmp_path, results, "-n", "1,2")
    assert (code, made) == (1, [(1, 1), (2, 1), (1, 1), (1, 1)])
    assert "failed with exit code 9: KeyError: 'x'" in capsys.readouterr().out


def test_a_row_that_never_calls_fit_is_shown_and_the_others_are_kept(monkeypatch, tmp_path, capsys):
    results = {1: runs.Run(0, "", [], figures(10)), 2: runs.Run(0, NO_FIT, [], None)}
    code, _ = run_made(monkeypatch, tmp_path, results, "-n", "1,2")
    assert code == 1
    assert f"failed: {NO_FIT}" in (tmp_path / "scaling.html").read_text()
    results[1] = results[2]
    assert run_made(monkeypatch, tmp_path, results, "-n", "1,2") == (3, [(1, 1)])


def test_what_was_measured_is_shown_after_a_signal(monkeypatch, tmp_path, capsys):
    class Stop(dict):
        def __missing__(self, ranks):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_made(monkeypatch, tmp_path, Stop({1: runs.Run(0, "", [], figures(10))}), "-n", "1,2")
    assert "not run" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["scaling.html"]


@pytest.mark.parametrize("where", [{"SLURMD_NODENAME": "n1"}, {}])
def test_hosts_of_a_batch_job_are_refused_before_they_are_asked(launcher, where):
    for program in ("srun", "ssh"):
        launcher.script("#!/bin/sh\ntouch asked\n", program, 0o755)
    hosts = "n[1-2]" if where else "n1"  # outside of the job, in the shell of salloc
    job = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": hosts, "SLURM_TASKS_PER_NODE": "1(x2)", **where}
    path = f"{launcher.folder}:{launcher.env['PATH']}"
    done = launcher.run("scaling", "-n", "2", "--", launcher.script("open('ran', 'w')"), env={"PATH": path, **job})
    assert done.returncode == 2
    assert "tarantella scaling measures the cores of this machine, but the ranks of Slurm job 12 run on n1" in done.err
    assert not {"asked", "ran"} & {path.name for path in launcher.folder.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-n", "1,two", "--", "script.py"], "needs whole numbers from 1 on, such as 1,2,4, not '1,two'"),
        (["-n", "0", "--", "script.py"], "needs whole numbers from 1 on"),
        (["--cpus-per-rank", "1,", "--", "script.py"], "needs whole numbers from 1 on"),
        (["--repeat", "0", "--", "script.py"], "needs a whole number from 1 on, not '0'"),
        (["-n", "1,2", "script.py"], "no script given; put it after '--'"),
        (["--", "nowhere.py"], "cannot read script 'nowhere.py': No such file or directory"),
        (["--no-gup", "--", "script.py"], "did you mean '--no-gpu'?"),
        (["--timeline=t.json", "--", "script.py"], "use it without scaling"),
        (["--timel", "t.json", "--", "script.py"], "--timel is for one job"),
        (["--dry", "--", "script.py"], "--dry is for one job"),
        (["--cleanup", "--", "script.py"], "--cleanup is for one job"),
        (["--hostfile=hosts", "--", "script.py"], "leave out other hosts"),
        (["--output", "no/folder.html", "--", "script.py"], "cannot write 'no/folder.html'"),
        (["--output", "", "--", "script.py"], "cannot write ''"),
        (["--output", "/dev/null", "--", "script.py"], "cannot write '/dev/null'"),
    ],
)
def test_an_invalid_command_line_starts_nothing(launcher, arguments, part):
    launcher.script("open('ran', 'w')")
    (launcher.folder / "hosts").write_text("a\nb\n")
    done = launcher.run("scaling", *arguments)
    assert done.returncode == 2
    assert part in done.err
    assert not (launcher.folder / "ran").exists()


def test_a_script_that_never_calls_fit(launcher):
    done = launcher.run("scaling", "-n", "1,2", "--no-gpu", "--", launcher.script("import tarantella"))
    assert done.returncode == 3
    assert done.out.splitlines()[-1].startswith("script.py never trains in fit of a tarantella.Model")
    assert "model = tnt.Model(model)" in done.out and "2 ranks" not in done.out


def test_a_signal_ends_the_run_and_leaves_nothing(launcher):
    script = launcher.script("import time; open('started', 'w'); time.sleep(60)")
    temporary = launcher.folder / "temporary"
    temporary.mkdir()
    process = launcher.start("scaling", "-n", "1", "--no-gpu", "--", script, env={"TMPDIR": str(temporary)})
    launcher.wait_for_files("started")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    launcher.wait_for_none()
    assert not list(temporary.glob("tarantella-scaling-*"))


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/", {}, math.inf),
        ("0::/", {"cpu.max": "max 100000"}, math.inf),
        ("0::/a/b", {"cpu.max": "350000 100000"}, 3.5),  # of a container, which does not see /a/b
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("4:memory:/\n1:cpu,cpuacct:/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": "50000"}, 0.5),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1"}, math.inf),
    ],
)
def test_a_container_has_as_many_cores_as_its_quota(tmp_path, group, files, expected):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(group + "\n")
    for name, content in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
        (file.parent / "cpu.cfs_period_us").write_text("100000\n")
    assert _machine.cpu_quota(tmp_path) == expected
    assert len(_machine.usable_cores(tmp_path)) == max(1, min(expected, len(os.sched_getaffinity(0))) // 1)


def test_it_loads_no_framework():
    code = "import sys, tarantella.scaling.__main__; print({'keras', 'numpy', 'tensorflow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.full
def test_a_script_is_measured_on_one_and_two_ranks_and_fails_on_three(launcher):
    script = launcher.script("""
        import os
        if os.environ["TNT_SIZE"] == "3":
            raise RuntimeError("three is a crowd")
        import keras
        import numpy as np
        import tarantella as tnt

        keras.utils.set_random_seed(1)
        model = tnt.Model(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
        model.fit(np.ones((96, 8)), np.ones((96, 1)), batch_size=16, epochs=3, verbose=0)
    """)
    done = launcher.run("scaling", "-n", "1,2,3", "--cpus-per-rank", 1, "--repeat", 1, "--no-gpu", "--", script,
                        timeout=280)  # fmt: skip
    assert done.returncode == 1, done.out + done.err
    assert "RuntimeError: three is a crowd" in done.out
    assert "strong scaling: the global batch stays at 16 rows" in done.out
    lines = done.out.splitlines()
    shown = [line.split() for line in lines[lines.index("") :] if line and line.split()[0] in ("1", "2")]
    times, parts = [line for line in shown if len(line) == 10], [line for line in shown if len(line) in (8, 9)]
    assert [line[0] for line in times] == ["1", "2"] and [line[2] for line in parts] == ["0", "0", "1"]
    for line in parts:
        assert sum(map(float, line[3:8])) == pytest.approx(100, abs=0.3)
    assert parts[0][5:7] == ["0.0", "0.0"]  # one rank neither communicates nor waits
    assert any(line.startswith("advice for ") for line in lines)
    ElementTree.fromstring((launcher.folder / "scaling.html").read_text())
