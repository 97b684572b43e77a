"""bench/examples.py judges steps of the examples from timelines. All numbers are made up."""

from __future__ import annotations

import pytest

from tarantella.scaling.trace import Rank, Span


def a_round(ranks: float, silent: float, waits: float = 0.01, strangers: float = 0.0) -> dict:
    rows = {"2 ranks": {"step": ranks, "input": waits}, "silent": {"step": silent, "input": 0.0}}
    return {"strangers": strangers, "measured": {"lenet5": rows}}


def test_a_step_counts_from_the_second_epoch_on_and_without_what_lies_between_epochs(bench):
    steps = [Span(0, 9), Span(20, 21), Span(22, 23), Span(30, 32), Span(32, 34)]
    rank = Rank(epochs=[Span(0, 10), Span(19, 25), Span(29, 40)], steps=steps)
    assert bench("examples").seconds_of_a_step(rank) == pytest.approx((3 + 4) / 4)


def test_ranks_are_compared_within_a_round_and_the_median_is_judged(bench):
    rounds = [a_round(0.010, 0.010), a_round(0.052, 0.050), a_round(0.024, 0.020, waits=0.2)]
    (line,) = bench("examples").cells(rounds)
    assert line == ["lenet5", "64", "28 x 28", "24.0", "20.0", "1.040 (1.200)", "met", "1.0% (20.0%)", "met"]
    (line,) = bench("examples").cells([a_round(0.0106, 0.010, waits=0.06)])
    assert (line[6], line[8]) == ("MISSED", "MISSED")


def test_the_table_is_markdown_as_the_documentation_has_it(bench):
    here = {"processor": "A CPU", "cores": 2, "date": "2026-11-24T10:00:00+00:00"}
    first, _, head, rule, line, _, noisy = bench("examples").markdown([a_round(0.02, 0.01)], here).splitlines()
    assert first == "A CPU, 2 cores, 2026-11-24; 1 round."
    assert head.count("|") == rule.count("|") == line.count("|") == 10
    assert head in (bench("examples").ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert noisy == "Noisy, so this run does not count: a single round does not show how much rounds differ."


def test_a_run_beside_others_or_of_one_round_is_noisy(bench):
    noise = bench("examples").noise
    assert noise([a_round(1, 1), a_round(1, 1)]) == []
    assert len(noise([a_round(1, 1, strangers=0.1)])) == 2


def test_every_example_names_a_program_and_its_options(bench):
    module = bench("examples")
    for name, example in module.EXAMPLES.items():
        program = module.ROOT / "examples" / example.program
        source = program.read_text(encoding="utf-8")
        for word in example.arguments.split():
            if word.startswith("--"):
                assert word.partition("=")[0] in source, (name, word)
