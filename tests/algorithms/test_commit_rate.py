"""The search for ADSP's commit rate, worked by hand: rates out, losses in."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import pytest

from testbed.algorithms import Adsp
from testbed.algorithms.base import Applied
from testbed.algorithms.parts.commit_rate import CommitRateSearch
from testbed.algorithms.parts.commits import CommitCounts
from testbed.algorithms.parts.reward import reward
from testbed.reports.waiting import implicit_momentum
from testbed.values.units import Duration

PERIOD = 60.0
TARGET = 0.25


def curve(time: float) -> float:
    """1 / (a1² t + a2) + a3 with a1² = 0.01, a2 = 1, a3 = 0.2."""
    return 1 / (0.01 * time + 1) + 0.2


def window(start: float) -> list[tuple[float, float]]:
    return [(time, curve(time)) for time in (start, start + 30, start + 60)]


def test_a_reward_by_hand() -> None:
    """Down to 0.4 it is 1 / (0.4 - 0.2) = 5 = 0.01 t + 1: at 400 s, so 1 / 400.

    0.2 is one of the 200 a3 from 0 up to 0.4: the hundredth.
    """
    assert reward(window(0), goal=0.4) == pytest.approx(1 / 400)


def test_two_windows_of_one_curve_have_the_same_reward() -> None:
    assert reward(window(60), goal=0.4) == pytest.approx(reward(window(300), goal=0.4))


def test_the_faster_of_two_curves_has_the_higher_reward() -> None:
    slow = [(0.0, 2.0), (30.0, 1.9), (60.0, 1.8)]
    fast = [(0.0, 2.0), (30.0, 1.7), (60.0, 1.5)]
    assert reward(fast, goal=1.0) > reward(slow, goal=1.0) > 0


@pytest.mark.parametrize(
    ("losses", "goal"),
    [
        ((1.0, 1.0, 1.1), 0.5),  # rising
        ((1.0, 1.0, 1.0), 0.5),  # constant
        ((1.0, 0.0, 0.0), 0.5),  # no a3 is below a loss of 0
        ((1.0, 0.9, 0.8), 1.5),  # 1 / (1.5 - a3) is below the line at time 0: in the past
    ],
)
def test_losses_without_a_reward(losses: tuple[float, float, float], goal: float) -> None:
    times = (0.0, 30.0, 60.0)
    assert reward(list(zip(times, losses, strict=True)), goal=goal) == -inf


def test_with_one_commit_per_period_the_middle_equals_the_start() -> None:
    """All commits fall at the period's end, so two of the three losses are the same."""
    assert reward([(0, 2.0), (30, 2.0), (60, 1.5)], goal=1.0) > 0


def drive(search: CommitRateSearch, *, speeds: Mapping[float, float], periods: int) -> list[float]:
    """The rate of every period; at rate d the training is ``speeds[d]`` times as fast."""
    rates: list[float] = []
    now = progress = 0.0
    while len(rates) < periods:
        if rates:
            progress += speeds[rates[-1]] * (search.due - now)
        now = search.due
        rate = search.advance(now)
        if rate is not None:
            rates.append(rate)
        if search.wants_loss():
            search.measured(now, curve(progress))
    return rates


def search_of(*, periods: int, **options: Any) -> CommitRateSearch:
    """A search with this number of periods per epoch."""
    return CommitRateSearch(
        Adsp(
            name="adsp",
            check_period=Duration(PERIOD),
            epoch=Duration(periods * PERIOD),
            **options,
        )
    )


SPEEDS = {1: 1.0, 2: 1.5, 3: 2.0, 4: 1.2}
"""Three commits in a period are best."""


def test_an_epoch_tries_rates_until_the_reward_drops() -> None:
    """Trials at 1, 2, 3 and 4; then 3 until ten periods are over, and from 1 again."""
    search = search_of(periods=10, target_loss=TARGET)
    assert drive(search, speeds=SPEEDS, periods=14) == [1, 2, 3, 4, *[3] * 6, 1, 2, 3, 4]


def test_a_later_epoch_may_begin_with_what_was_found() -> None:
    search = search_of(periods=6, target_loss=TARGET, search_from="last")
    assert drive(search, speeds=SPEEDS, periods=9) == [1, 2, 3, 4, 3, 3, 3, 4, 3]


def test_a_better_rate_may_be_tried_again() -> None:
    search = search_of(periods=10, target_loss=TARGET, reevaluate=True)
    assert drive(search, speeds=SPEEDS, periods=7) == [1, 2, 2, 3, 3, 4, 3]


def test_a_search_has_no_more_trials_than_its_epoch_has_periods() -> None:
    search = search_of(periods=2)
    assert drive(search, speeds=SPEEDS, periods=5) == [1, 2, 1, 2, 1]


def test_one_loss_is_wanted_where_a_trial_ends_and_another_begins() -> None:
    """Losses of trials from 0 and 60; the second stands still, so a period at 1 follows it."""
    search, wanted = search_of(periods=10), []
    for loss in (4.0, 3.5, 3.0, 3.0, 3.0, 3.0):
        while not search.wants_loss():
            now = search.due
            search.advance(now)
        wanted.append(now)
        search.measured(now, loss)
    assert wanted == [0, 30, 60, 90, 120, 180]


def test_a_loss_that_rises_by_30_percent_starts_a_new_search() -> None:
    """Trials at 1 and 2, a period at 1; then checkpoints at 1.2 and 1.4 times the loss before."""
    search, rates = search_of(periods=20), []
    for loss in (4.0, 3.5, 3.0, 3.0, 3.0, 3.6, 5.04):
        while not search.wants_loss():
            now = search.due
            rates.append(search.advance(now))
        search.measured(now, loss)
    assert (now, rates) == (240, [1, None, None, 2, None, None, 1, 1, 1])
    assert search.due == 240  # at once: the first trial of a search
    assert search.advance(240) == 1
    assert search.due == 270


def test_a_trial_ends_the_search_once_the_training_has_converged() -> None:
    """After a period at 1 the loss is 1 / 1.6 + 0.2 = 0.825."""
    search = search_of(periods=10, target_loss=0.83)
    assert drive(search, speeds=SPEEDS, periods=4) == [1, 1, 1, 1]


def test_without_a_target_half_of_the_loss_is_the_goal() -> None:
    search = search_of(periods=10)
    assert drive(search, speeds={1: 0.1, 2: 0.2, 3: 0.1}, periods=4) == [1, 2, 3, 2]


def test_a_loss_that_never_comes_ends_the_search_a_period_later() -> None:
    search = search_of(periods=10)
    times = []
    for _ in range(6):
        times.append(search.due)
        search.advance(search.due)
    # start, middle and end of a trial at 1; without its losses it ends at 120; so does that at 2
    assert times == [0, 30, 60, 120, 150, 180]
    assert search.rate == 2


def test_a_loss_of_a_moment_before_the_one_that_is_wanted_is_no_answer() -> None:
    search = search_of(periods=10)
    search.advance(0.0)
    search.measured(0.0, 5.0)
    search.advance(30.0)
    search.measured(29.0, 5.0)
    assert search.wants_loss()


def test_a_loss_that_was_measured_just_now_is_not_wanted_again() -> None:
    """The evaluation of the moment at which a trial ends came before: the next begins at once."""
    search = search_of(periods=10)
    rates = []
    for time, loss in ((0.0, 4.0), (30.0, 3.5), (60.0, 3.0), (90.0, 2.5)):
        search.measured(time, loss)
        rates.append(search.advance(time))
        assert not search.wants_loss()
    assert (rates, search.due) == ([1, None, 2, None], 120)


def test_a_fixed_rate_is_not_searched_for() -> None:
    search = search_of(periods=10, commit_rate=0.25)
    assert [search.advance(now) for now in (0.0, 60.0)] == [0.25, 0.25]
    assert search.due == 120
    assert not search.wants_loss()


def test_slow_workers_catch_up_by_hand() -> None:
    """c = (5, 3) and d = 2: C = 7, so 2 and 4 commits in 60 s."""
    counts = CommitCounts(PERIOD, commits={0: 5, 1: 3})
    for worker in (0, 1):
        counts.join(worker)
    assert counts.intervals(2, 0.0) == {0: 30, 1: 15}
    counts.count(1, 10.0)
    assert counts.intervals(2, 10.0) == {0: 30, 1: 20}


def test_dead_workers_do_not_affect_the_target() -> None:
    """w0 was last heard from at 0; at 181 it is dead. C = 3 + 1, and w0 is ahead of it."""
    counts = CommitCounts(PERIOD, commits={0: 5, 1: 2})
    for worker in (0, 1):
        counts.join(worker)
    counts.count(1, 150.0)
    assert counts.intervals(1, 180.0) == {0: 60, 1: 20}
    assert counts.intervals(1, 181.0) == {0: inf, 1: 60}
    # At a quarter of a commit per period, each worker is silent for four periods.
    assert counts.intervals(0.25, 181.0) == {0: 240, 1: pytest.approx(60 / 2.25)}


def test_no_interval_is_shorter_than_the_minimum() -> None:
    counts = CommitCounts(PERIOD, least_interval=10.0)
    counts.join(0)
    assert counts.intervals(20, 0.0) == {0: 10}


def test_a_late_worker_starts_with_the_lowest_count() -> None:
    counts = CommitCounts(PERIOD, commits={0: 5, 1: 3})
    counts.join(2)
    assert counts.commits[2] == 3
    counts.leave(1)
    counts.join(1)
    assert counts.commits[1] == 3


@pytest.mark.parametrize("commit", ["at_timeout", "after_batch"])
def test_a_late_adsp_worker_has_a_whole_interval_for_its_first_commit(
    group_of: Any, commit: str
) -> None:
    """w0 commits 60 s after the start of training, w1, which joins at 1000 s, at 1060."""
    group = group_of(Adsp.model_validate({"name": "adsp", "commit": commit}), 2, pulled=False)
    group.pull(0, now=4.0)
    assert group.step(0, 0, 0, now=59.0) is None
    assert group.push(0, 0, 0, now=60.0) == [Applied(0, 0)]
    group.pull(1, now=1000.0)
    assert group.step(1, 0, 0, now=1000.5) is None
    assert group.step(1, 0, 0, now=1059.0) is None
    update = group.step(1, 0, 0, now=1060.0)
    assert update is not None
    assert update.steps == 3


def test_a_late_adsp_worker_has_it_also_before_anyone_has_committed(group_of: Any) -> None:
    """w0's first step takes 200 s; w1, which joins at 100 s, commits at 160."""
    group = group_of(Adsp.model_validate({"name": "adsp"}), 2, pulled=False)
    group.pull(0, now=4.0)
    group.pull(1, now=100.0)
    assert group.step(1, 0, 0, now=100.5) is None
    assert group.step(1, 0, 0, now=159.0) is None
    assert group.step(1, 0, 0, now=160.0) is not None


FIGURE = (0.459, 0.298, 0.221, 0.175, 0.145, 0.124, 0.108, 0.096, 0.086, 0.078)


@pytest.mark.parametrize(("rate", "momentum"), list(enumerate(FIGURE, start=1)))
def test_the_implicit_momentum_of_the_papers_figure(rate: int, momentum: float) -> None:
    """Figure 3b: 18 workers, each with 20 steps per check period."""
    found = implicit_momentum([rate] * 18, steps=[20] * 18)
    assert found == pytest.approx(momentum, abs=0.0006)


def test_the_implicit_momentum_of_three_workers_by_hand() -> None:
    """Steps of .49, .4 and 1.49 s in 60 s: 2/3 * 2.38 / 60 = .02644, and 1 - 1/1.02644 = .02576."""
    steps = [60 / 0.49, 60 / 0.40, 60 / 1.49]
    assert implicit_momentum([1] * 3, steps=steps) == pytest.approx(0.02576, abs=1e-5)
    assert implicit_momentum([1], steps=[7]) == 0  # a single worker has none
    with pytest.raises(ValueError, match="no workers"):
        implicit_momentum([], steps=[])
