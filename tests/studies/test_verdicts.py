"""Expectations compared with results: their verdicts, with numbers chosen by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

import pytest

from testbed.studies import load_study
from testbed.studies.found import Results, find_runs
from testbed.studies.verdicts import Judged, _differ, judge

TEXT = """\
name: two
scenario: base.yaml
vary: {rate: [algorithm.learning_rate=0.1, algorithm.learning_rate=0.2]}
seeds: [1, 2]
expects:
  it:
    measure: %s
    source: here
"""
ORDER = "    order: [{rate: 0.2}, {rate: 0.1}]\n"
RATIO = "    ratio: [{rate: 0.2}, {rate: 0.1}]\n    value: 2\n    tolerance: 0.1\n"
VALUE = "    where: {rate: 0.1}\n    value: 0.5\n    tolerance: 0.1\n"

Accuracies = Mapping[tuple[str, int], list[float]]


@pytest.fixture
def judged(
    write_study: Callable[..., Path], write_run: Callable[..., Any], tmp_path: Path
) -> Callable[..., Judged]:
    """The only expectation, judged by runs with these accuracies, by rate and seed."""

    def judge_one(expects: str, top1: Accuracies, *, measure: str = "best_accuracy") -> Judged:
        study = load_study(write_study(text=TEXT % measure + expects))
        for run in study.runs:
            key = (dict(run.case.levels)["rate"], run.seed)
            if key in top1:
                write_run(run, tmp_path / "runs", top1[key])
        (one,) = judge(Results(study, study, find_runs(study, tmp_path / "runs")))
        return one

    return judge_one


def both(first: list[float], second: list[float]) -> Accuracies:
    """Best accuracies at the rates 0.1 and 0.2 with the seeds 1 and 2."""
    return {
        (rate, seed): [value]
        for rate, values in (("0.1", first), ("0.2", second))
        for seed, value in enumerate(values, start=1)
    }


@pytest.mark.parametrize(
    ("expects", "first", "second", "verdict"),
    [
        (ORDER, [0.5, 0.6], [0.7, 0.7], "reproduced"),
        (ORDER, [0.5, 0.6], [0.8, 0.61], "reproduced"),  # ahead with each seed
        (ORDER, [0.5, 0.6], [0.65, 0.59], "not resolved"),
        (ORDER, [0.5, 0.6], [0.3, 0.6], "not reproduced"),  # equal is not ahead
        (f"{ORDER}    tolerance: 0.1\n", [0.5, 0.6], [0.46, 0.6], "reproduced"),
        (f"{ORDER}    tolerance: 0.1\n", [0.5, 0.6], [0.5, 0.61], "reproduced"),
        (f"{ORDER}    tolerance: 0.1\n", [0.5, 0.0], [0.5, 0.0], "not resolved"),  # nothing differs
        (RATIO, [0.4, 0.4], [0.8, 0.84], "reproduced"),  # 2.0 and 2.1
        (RATIO, [0.4, 0.4], [0.8, 0.9], "not resolved"),  # 2.0 and 2.25
        (RATIO, [0.4, 0.4], [0.9, 1.0], "not reproduced"),
        (RATIO, [0.8, 0.4], [0.8, 1.0], "not resolved"),  # 1.0 and 2.5: either side
        (VALUE, [0.46, 0.54], [], "reproduced"),
        (VALUE, [0.5, 0.56], [], "not resolved"),
        (VALUE, [0.4, 0.44], [], "not reproduced"),
    ],
)
def test_by_both_seeds(
    judged: Callable[..., Judged],
    expects: str,
    first: list[float],
    second: list[float],
    verdict: str,
) -> None:
    found = judged(expects, both(first, second))
    assert (found.verdict, found.seeds, found.source) == (verdict, 2, "here")


def test_by_the_seeds_common_to_all_cases(judged: Callable[..., Judged]) -> None:
    found = judged(ORDER, both([0.5, 0.9], [0.7]))
    assert (found.verdict, found.seeds) == ("not resolved", 1)  # one seed of a short run
    assert found.found == "70.00%, 50.00%"
    assert found.expected == "best accuracy: rate 0.2 > rate 0.1"


ARITHMETIC = f"{ORDER}    basis: arithmetic\n"


def test_arithmetic_needs_no_seeds_and_no_difference(judged: Callable[..., Judged]) -> None:
    found = judged(ARITHMETIC, both([0.5], [0.501]))
    assert (found.verdict, found.seeds, found.basis) == ("reproduced", 1, "arithmetic")


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        # 100 test images: the standard error of .50 against .56 is (.25 + .2464)^.5 / 10 = .0705
        ([0.5, 0.5], [0.56, 0.56], "not resolved"),
        ([0.56, 0.56], [0.5, 0.5], "not resolved"),
        ([0.5, 0.5], [0.58, 0.58], "reproduced"),
        # .98 against .99 is (.0196 + .0099)^.5 / 10 = .0172
        ([0.98, 0.98], [0.99, 0.99], "not resolved"),
        ([0.97, 0.97], [0.99, 0.99], "reproduced"),  # (.0291 + .0099)^.5 / 10 = .0197
    ],
)
def test_accuracies_differ_by_the_standard_error(
    judged: Callable[..., Judged], first: list[float], second: list[float], verdict: str
) -> None:
    assert judged(ORDER, both(first, second)).verdict == verdict


def test_other_measures_differ_from_two_percent() -> None:
    assert not _differ((101.0, None), (100.0, None))
    assert not _differ((100.0, None), (98.1, None))
    assert _differ((103.0, None), (100.0, None))
    assert _differ((inf, None), (100.0, None))
    assert not _differ((inf, None), (inf, None))


WIDE = "    ratio: [{rate: 0.2}, {rate: 0.1}]\n    value: 1.42\n    tolerance: 0.4\n"


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        ([0.7, 0.7], "reproduced"),  # 1.4
        ([0.502, 0.502], "not resolved"),  # 1.004
        ([0.42, 0.42], "not reproduced"),  # 0.84 is within 40 % of 1.42, and the other is ahead
    ],
)
def test_a_ratio_is_on_the_expected_side_of_one(
    judged: Callable[..., Judged], second: list[float], verdict: str
) -> None:
    assert judged(WIDE, both([0.5, 0.5], second)).verdict == verdict


MIRRORED = "    ratio: [{rate: %s}, {rate: %s}]\n    value: %s\n    tolerance: 0.1\n"


@pytest.mark.parametrize("ratio", [("0.2", "0.1", "2"), ("0.1", "0.2", "0.5")])
def test_it_is_no_matter_which_measure_of_a_ratio_comes_first(
    judged: Callable[..., Judged], ratio: tuple[str, ...]
) -> None:
    """0.06 and 0.06 of 100 images, with a standard error of .034: 2.27 if the smaller is .026."""
    assert judged(MIRRORED % ratio, both([0.06, 0.06], [0.06, 0.06])).verdict == "not resolved"


@pytest.mark.parametrize(
    ("tolerance", "verdict"), [(0.1, "not reproduced"), (0.29, "not resolved")]
)
def test_a_ratio_of_nearly_1_may_be_far_from_what_is_expected(
    judged: Callable[..., Judged], tolerance: float, verdict: str
) -> None:
    """1.004 of accuracies, 1.145 with a standard error more; expected are 1.28 or 1.01 and more."""
    ratio = WIDE.replace("tolerance: 0.4", f"tolerance: {tolerance}")
    assert judged(ratio, both([0.5, 0.5], [0.502, 0.502])).verdict == verdict


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([0.8, 0.8], [0.4, 0.88], "not resolved"),  # 0.5 and 1.1, whose mean is below 1
        ([0.5, 0.8], [0.8, 0.72], "not resolved"),  # 1.6 and 0.9, both within 50 % of 1.5
        ([0.8, 0.8], [0.64, 0.72], "not reproduced"),  # 0.8 and 0.9
        ([0.4, 0.8], [0.4, 0.96], "reproduced"),  # 1.0 is on neither side, and 1.2
    ],
)
def test_every_seed_is_on_its_side_of_one(
    judged: Callable[..., Judged], first: list[float], second: list[float], verdict: str
) -> None:
    wide = "    ratio: [{rate: 0.2}, {rate: 0.1}]\n    value: 1.5\n    tolerance: 0.5\n"
    assert judged(wide, both(first, second)).verdict == verdict


def test_without_a_common_seed_an_expectation_was_not_run(judged: Callable[..., Judged]) -> None:
    assert judged(ORDER, both([0.5, 0.9], [])).verdict == "not run"


def test_arithmetic_that_was_not_run_is_counted_separately_too(
    judged: Callable[..., Judged],
) -> None:
    found = judged(ARITHMETIC, both([0.5, 0.9], []))
    assert (found.verdict, found.basis) == ("not run", "arithmetic")


@pytest.mark.parametrize(("evaluations", "verdict"), [(1, "not resolved"), (3, "reproduced")])
def test_never_is_later_than_any_time_that_its_run_has_passed(
    judged: Callable[..., Judged], evaluations: int, verdict: str
) -> None:
    """At 0.1 the accuracy 0.6 comes after 20 updates; at 0.2 not within 20, or not within 60."""
    slow = both([0.7, 0.7], [0.5, 0.5])
    slow = {key: top1 * evaluations if key[0] == "0.2" else top1 for key, top1 in slow.items()}
    assert judged(ORDER, slow, measure="updates_to(0.6)").verdict == verdict


NEVER_LAST = f"{ORDER}    tolerance: 0.1\n"


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([0.7, 0.5], [0.5, 0.5], "reproduced"),  # never > 20, never = never
        ([0.5, 0.5], [0.5, 0.7], "not resolved"),  # never = never, but 20 < never
        ([0.5, 0.5], [0.7, 0.7], "not resolved"),  # it may come right after the end, at 20
    ],
)
def test_with_a_tolerance_never_is_as_late_as_never(
    judged: Callable[..., Judged], first: list[float], second: list[float], verdict: str
) -> None:
    """An accuracy of 0.6 is reached after 20 updates or never; at 0.2 later is expected."""
    found = judged(NEVER_LAST, both(first, second), measure="updates_to(0.6)")
    assert found.verdict == verdict


HALF = "    ratio: [{rate: 0.2}, {rate: 0.1}]\n    at_most: 0.5\n"


@pytest.mark.parametrize(("evaluations", "verdict"), [(1, "not resolved"), (3, "reproduced")])
def test_what_a_run_has_not_reached_is_only_known_to_come_after_its_end(
    judged: Callable[..., Judged], evaluations: int, verdict: str
) -> None:
    """At 0.2 after 20 updates. At 0.1 not within 20, or not within 60, of which 20 is a third."""
    runs = both([0.5, 0.5], [0.7, 0.7])
    longer = {key: top1 * evaluations if key[0] == "0.1" else top1 for key, top1 in runs.items()}
    assert judged(HALF, longer, measure="updates_to(0.6)").verdict == verdict


def test_a_ratio_of_what_was_not_reached_may_be_on_either_side(
    judged: Callable[..., Judged],
) -> None:
    """At 0.2 not within 60 updates, at 0.1 after 20: 3 or more. Expected are 1.5 to 4.5."""
    runs = both([0.7, 0.7], [0.5, 0.5])
    longer = {key: top1 * 3 if key[0] == "0.2" else top1 for key, top1 in runs.items()}
    wide = "    ratio: [{rate: 0.2}, {rate: 0.1}]\n    value: 3\n    tolerance: 0.5\n"
    assert judged(wide, longer, measure="updates_to(0.6)").verdict == "not resolved"


def test_what_is_expected_may_lie_between_the_end_of_a_run_and_never(
    judged: Callable[..., Judged],
) -> None:
    """At 0.2 not within 40 updates, at 0.1 after 20: 2 or more. Expected are 2.7 to 3.3."""
    runs = both([0.7, 0.7], [0.5, 0.5])
    longer = {key: top1 * 2 if key[0] == "0.2" else top1 for key, top1 in runs.items()}
    three = "    ratio: [{rate: 0.2}, {rate: 0.1}]\n    value: 3\n    tolerance: 0.1\n"
    assert judged(three, longer, measure="updates_to(0.6)").verdict == "not resolved"


def test_two_runs_that_never_reach_it_have_no_ratio(judged: Callable[..., Judged]) -> None:
    neither = both([0.4, 0.4], [0.4, 0.4])
    assert judged(RATIO, neither, measure="updates_to(0.6)").verdict == "not resolved"


def test_missing_measures_are_undecided(judged: Callable[..., Judged]) -> None:
    found = judged(ORDER, both([0.5, 0.5], [0.9, 0.9]), measure="best_accuracy(10)")
    assert found.verdict == "not resolved"


DIFFERENCE = "    difference: [{rate: 0.2}, {rate: 0.1}]\n    value: 0.1\n    tolerance: 0.5\n"
NO_DIFFERENCE = "    difference: [{rate: 0.2}, {rate: 0.1}]\n    value: 0\n    tolerance: 0\n"
LARGE = "    difference: [{rate: 0.2}, {rate: 0.1}]\n    value: 0.4\n    tolerance: 0.5\n"
AT_MOST = "    where: {rate: 0.1}\n    at_most: 0.5\n"
NEVER = "    where: {rate: 0.1}\n    value: never\n"


@pytest.mark.parametrize(
    ("expects", "first", "second", "verdict"),
    [
        (DIFFERENCE, [0.5, 0.6], [0.64, 0.66], "reproduced"),  # 0.14 and 0.06
        (DIFFERENCE, [0.5, 0.6], [0.64, 0.64], "not resolved"),  # 0.14 and 0.04
        (DIFFERENCE, [0.5, 0.6], [0.7, 0.76], "not reproduced"),  # 0.2 and 0.16: both above 0.15
        # 0.06 and 0.06 are within, and less than (.2475 + .2379)^.5 / 10 = .0697 of 100 images
        (DIFFERENCE, [0.5, 0.6], [0.56, 0.66], "not resolved"),
        # 0.02 is less than that standard error, too: 0.03 below what is expected, or 0.18
        (DIFFERENCE, [0.5, 0.6], [0.52, 0.62], "not resolved"),
        (LARGE, [0.5, 0.6], [0.52, 0.62], "not reproduced"),
        (LARGE, [0.5, 0.6], [0.4, 0.75], "not resolved"),  # -0.1 and 0.15, with .07 more within
        (NO_DIFFERENCE, [0.5, 0.6], [0.5, 0.6], "reproduced"),
        (AT_MOST, [0.4, 0.5], [], "reproduced"),
        (AT_MOST, [0.4, 0.6], [], "not resolved"),
        (AT_MOST, [0.6, 0.7], [], "not reproduced"),
    ],
)
def test_differences_and_limits(
    judged: Callable[..., Judged],
    expects: str,
    first: list[float],
    second: list[float],
    verdict: str,
) -> None:
    assert judged(expects, both(first, second)).verdict == verdict


def test_a_difference_of_shares_is_in_points(judged: Callable[..., Judged]) -> None:
    found = judged(DIFFERENCE, both([0.5], [0.64]))
    assert found.expected == "best accuracy: rate 0.2 - rate 0.1 = 10.00 points within 50 %"
    assert found.found == "14.00 points"


def test_a_limit_in_words(judged: Callable[..., Judged]) -> None:
    found = judged(AT_MOST, both([0.5], []))
    assert found.expected == "best accuracy of rate 0.1: at most 50.00%"


@pytest.mark.parametrize(
    ("first", "verdict", "shown"),
    [
        ([0.5, 0.5], "reproduced", "never"),
        ([0.5, 0.6], "not resolved", "never (20 to never)"),
        ([0.6, 0.7], "not reproduced", "20"),
    ],
)
def test_an_accuracy_expected_never_to_be_reached(
    judged: Callable[..., Judged], first: list[float], verdict: str, shown: str
) -> None:
    """An accuracy of 0.6, by none of two seeds, by one, by both."""
    found = judged(NEVER, both(first, []), measure="updates_to(0.6)")
    assert (found.verdict, found.found) == (verdict, shown)
    assert found.expected == "updates to 60 % of rate 0.1: never"
