"""Compares expectations with results: reproduced, not reproduced or not resolved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, isinf, isnan, nan, nextafter, sqrt
from statistics import fmean
from typing import Literal

from testbed.studies.document import Expectation, Selection
from testbed.studies.found import Results, spread
from testbed.studies.study import Case

Verdict = Literal["reproduced", "not reproduced", "not resolved", "not run"]

LEAST_DIFFERENCE_RATIO = 0.02
"""Minimum relative difference between two measures to distinguish them, over the greater one."""


@dataclass(frozen=True)
class Judged:
    """An expectation and its verdict."""

    name: str  # of the expectation
    expected: str  # as text
    found: str  # as text
    verdict: Verdict  # see ``judge``
    seeds: int  # number of seeds behind the verdict
    source: str  # source of the expectation
    basis: str = ""  # see ``Expectation``


def judge(results: Results) -> list[Judged]:
    """Judge every expectation, by the seeds for which all its cases have a valid run.

    For a part of a study, only expectations whose cases are all in the part.

    A value, ratio or difference is reproduced if it is within the tolerance for every seed, and
    not reproduced if it is outside on the same side for all seeds. An order is reproduced if it
    holds for every seed, and not reproduced if two neighbours are reversed for every seed.
    With a tolerance, equal neighbours are in order; if all are equal for every seed, there is
    no order to check, and it is not resolved.
    Everything else is not resolved: the seeds disagree. So is a verdict that would be another if a
    value that a run has not reached were reached right after its end.

    The result of a training is also not resolved if it is based on one seed of runs shorter than
    an hour, or if two measures that must differ are too close: within the standard error of the
    test samples for accuracies, within 2 % for all else, unless a ratio or difference would be
    outside the tolerance even if they were that much further apart. A ratio on the other side of 1
    than expected is outside the tolerance, no matter how wide this is.
    """
    part = set(results.study.cases)
    found = []
    for name, expectation in results.study.document.expects.items():
        several = expectation.order or expectation.ratio or expectation.difference or ({},)
        cases = [_case(results, {**expectation.where, **selection}) for selection in several]
        if part.issuperset(cases):
            found.append(_judge(name, expectation, cases, results))
    return found


def _judge(name: str, expectation: Expectation, cases: Sequence[Case], results: Results) -> Judged:
    expected, basis = _expected(expectation, cases, results), expectation.basis or ""
    seeds = results.common_seeds(cases)
    if not seeds:
        return Judged(name, expected, "", "not run", 0, expectation.source, basis)
    columns = [results.values(case, expectation.measure, seeds) for case in cases]
    least = _at_the_least(expectation, cases, columns, results)
    verdict = _verdict(expectation, cases, columns, results)
    if verdict != _verdict(expectation, cases, least, results) or (
        _apart(expectation, columns) != _apart(expectation, least)
    ):
        verdict = "not resolved"
    if expectation.order is not None:
        show = expectation.measure.show
        found = ", ".join(spread(column, show) for column in columns)
    else:
        values = _meant(expectation, columns)
        found = spread(values, lambda value: _shown(expectation, value))
    return Judged(name, expected, found, verdict, len(seeds), expectation.source, basis)


def _verdict(
    expectation: Expectation,
    cases: Sequence[Case],
    columns: Sequence[Sequence[float]],
    results: Results,
) -> Verdict:
    if expectation.basis != "arithmetic" and not _tells(expectation, cases, columns, results):
        return "not resolved"
    if expectation.order is not None:
        return _order(columns, expectation.tolerance)
    return _within(_meant(expectation, columns), *_bounds(expectation))


def _apart(expectation: Expectation, columns: Sequence[Sequence[float]]) -> int:
    """Return -1 if all values are below what is expected, 1 if all are above, else 0."""
    if expectation.order is not None:
        return 0
    values, (low, high) = _meant(expectation, columns), _bounds(expectation)
    return (min(values) > high) - (max(values) < low)


def _at_the_least(
    expectation: Expectation,
    cases: Sequence[Case],
    columns: Sequence[Sequence[float]],
    results: Results,
) -> Sequence[Sequence[float]]:
    """Return the values, those not reached as if reached right after the end of their run."""
    if expectation.value == "never" or not any(inf in column for column in columns):
        return columns
    seeds = results.common_seeds(cases)
    ends = [results.ends(case, expectation.measure, seeds) for case in cases]
    return [
        [nextafter(end, inf) if isinf(value) else value for value, end in zip(*pair, strict=True)]
        for pair in zip(columns, ends, strict=True)
    ]


def _tells(
    expectation: Expectation,
    cases: Sequence[Case],
    columns: Sequence[Sequence[float]],
    results: Results,
) -> bool:
    """Whether there are enough seeds, and sufficient differences where they matter.

    Of a ratio or difference, two measures may be too close, and yet too far from what is expected.
    """
    if len(columns[0]) < 2 and not any(map(results.takes_long, cases)):
        return False
    means = [fmean(column) for column in columns]
    images = [results.images(case, expectation.measure) for case in cases]
    if expectation.order is not None:
        return expectation.tolerance is not None or all(
            _differ(*pair) for pair in pairwise(zip(means, images, strict=True))
        )
    if not _expects_unequal(expectation) or _differ(*zip(means, images, strict=True)):
        return True
    (first, second), least = columns, _least(*zip(means, images, strict=True))
    apart = [
        _apart(expectation, pair)
        for by in (-least, least)
        for pair in ([[one + by for one in first], second], [first, [one + by for one in second]])
    ]
    return abs(sum(apart)) == len(apart)


Found = tuple[float, int | None]
"""A measure, and the number of test samples that it is a share of, if it is one."""


def _differ(one: Found, other: Found) -> bool:
    """Whether two measures differ significantly."""
    if not (isfinite(one[0]) and isfinite(other[0])):
        return one[0] != other[0]
    return abs(one[0] - other[0]) > _least(one, other)


def _least(one: Found, other: Found) -> float:
    """Return the difference beyond which two measures differ significantly."""
    (first, first_images), (second, second_images) = one, other
    if first_images is None or second_images is None:
        return LEAST_DIFFERENCE_RATIO * max(abs(first), abs(second))
    errors = first * (1 - first) / first_images, second * (1 - second) / second_images
    return sqrt(sum(errors))


def _expects_unequal(expectation: Expectation) -> bool:
    """Whether a certain ratio other than 1, or difference of shares other than 0, is expected."""
    if not isinstance(expectation.value, float):
        return False
    if expectation.difference is not None:
        return expectation.measure.is_share and expectation.value != 0
    return expectation.ratio is not None and abs(expectation.value - 1) > LEAST_DIFFERENCE_RATIO


def _meant(expectation: Expectation, columns: Sequence[Sequence[float]]) -> Sequence[float]:
    """Return the expected quantity, seed by seed."""
    if expectation.ratio is not None:
        return [_over(one, other) for one, other in zip(*columns, strict=True)]
    if expectation.difference is not None:
        return [one - other for one, other in zip(*columns, strict=True)]
    return columns[0]


def _bounds(expectation: Expectation) -> tuple[float, float]:
    """Return the minimum and the maximum that match the expectation."""
    if expectation.at_most is not None:
        return -inf, expectation.at_most
    if expectation.value == "never":
        return inf, inf
    assert expectation.value is not None
    reach = abs(expectation.value) * (expectation.tolerance or 0.0)
    low, high = expectation.value - reach, expectation.value + reach
    if expectation.ratio is None or not _expects_unequal(expectation):
        return low, high
    return (max(1.0, low), high) if expectation.value > 1 else (low, min(1.0, high))


def _case(results: Results, where: Selection) -> Case:
    (case,) = results.whole.select(where)  # checked on loading
    return case


def _within(values: Sequence[float], low: float, high: float) -> Verdict:
    if any(isnan(value) for value in values):
        return "not resolved"
    if low <= min(values) and max(values) <= high:
        return "reproduced"
    apart = max(values) < low or min(values) > high
    return "not reproduced" if apart else "not resolved"


def _order(columns: Sequence[Sequence[float]], tolerance: float | None) -> Verdict:
    """Compare neighbours from the greatest to the least, seed by seed."""
    if tolerance is not None and all(list(one) == list(other) for one, other in pairwise(columns)):
        return "not resolved"
    verdicts = set(_ahead(columns, tolerance))
    if "not reproduced" in verdicts:
        return "not reproduced"
    return "not resolved" if "not resolved" in verdicts else "reproduced"


def _ahead(columns: Sequence[Sequence[float]], tolerance: float | None) -> Iterator[Verdict]:
    for first, second in pairwise(columns):
        if any(isnan(value) for value in (*first, *second)):
            yield "not resolved"
            continue
        holds = [_in_order(*pair, tolerance) for pair in zip(first, second, strict=True)]
        yield "reproduced" if all(holds) else "not resolved" if any(holds) else "not reproduced"


def _in_order(one: float, other: float, tolerance: float | None) -> bool:
    """Whether one value may precede the other; the tolerance does not apply to infinity."""
    if tolerance is None:
        return one > other
    return one >= (other if isinf(other) else other - tolerance * abs(other))


def _over(one: float, other: float) -> float:
    return one / other if other else nan


def _expected(expectation: Expectation, cases: Sequence[Case], results: Results) -> str:
    measure = expectation.measure
    names = [results.short_name(case) for case in cases]
    within = "" if not expectation.tolerance else f" within {100 * expectation.tolerance:g} %"
    if expectation.order is not None:
        return f"{measure.title}: {' > '.join(names)}{within}"
    value = expectation.value if expectation.at_most is None else expectation.at_most
    assert value is not None
    said = value if isinstance(value, str) else _shown(expectation, value)
    if expectation.ratio is None and expectation.difference is None:
        most = "" if expectation.at_most is None else "at most "
        return f"{measure.title} of {names[0]}: {most}{said}{within}"
    if expectation.ratio is not None and measure.is_encoded:
        names = [  # bytes are comparable only with their encoding
            f"{name} ({results.encoding(case)})" for name, case in zip(names, cases, strict=True)
        ]
    sign = "/" if expectation.ratio is not None else "-"
    equals = "=" if expectation.at_most is None else "<="
    return f"{measure.title}: {names[0]} {sign} {names[1]} {equals} {said}{within}"


def _shown(expectation: Expectation, value: float) -> str:
    """Format a value, a ratio without a unit, or a difference of shares in points."""
    if expectation.ratio is not None:
        return f"{value:.4g}"
    if expectation.difference is not None and expectation.measure.is_share:
        return f"{100 * value:.2f} points"
    return expectation.measure.show(value)
