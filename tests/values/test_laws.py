"""Laws of mean 1: parsing, drawing, printing."""

import numpy as np
import pytest

from testbed.errors import InvalidValue
from testbed.values.laws import Law


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("constant", Law("constant")),
        (" exponential ", Law("exponential")),
        ("uniform(0.5, 1.5)", Law("uniform", 0.5, 1.5)),
        ("uniform(.5,1.5)", Law("uniform", 0.5, 1.5)),
        ("uniform (0,2)", Law("uniform", 0, 2)),
        ("normal(1,0.1)", Law("normal", 1, 0.1)),
        ("lognormal(1, 2)", Law("lognormal", 1, 2)),
    ],
)
def test_laws_in_the_notation_of_papers(text: str, law: Law) -> None:
    assert Law.parse(text) == law


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("poisson", "expected a law: constant"),
        ("uniform", "expected a law"),
        ("constant(1)", "expected a law"),
        ("uniform(1,nan)", "expected a law"),
        ("uniform(-1,3)", "expected a law"),
        ("uniform(0.5", "in quotes"),
        ("uniform(1,2)", "whose mean is 1.5"),
        ("uniform(1.5,0.5)", "the lower end first"),
        ("uniform(0,1e999)", "whose mean is inf"),
        ("normal(2,0.1)", "whose mean is 2"),
        ("normal(1,0.5)", "at most 0.333"),
        ("lognormal(0,1)", "whose mean is 0"),
        ("lognormal(1,11)", "at most 10"),
    ],
)
def test_laws_without_mean_one_are_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Law.parse(text)
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    "law", ["constant", "exponential", "uniform(0.123456789,1.876543211)", "lognormal(1,0.5)"]
)
def test_printed_laws_parse_back(law: str) -> None:
    assert str(Law.parse(law)) == law


@pytest.mark.parametrize(
    ("text", "deviation"),
    [
        ("constant", 0.0),
        ("exponential", 1.0),
        ("uniform(0.5,1.5)", 1 / np.sqrt(12)),
        ("normal(1,0.3)", 0.3),
        ("lognormal(1,0.5)", 0.5),
    ],
)
def test_draws_have_mean_one_and_are_never_negative(text: str, deviation: float) -> None:
    law, rng = Law.parse(text), np.random.default_rng(7)
    draws = np.array([law.draw(rng) for _ in range(4000)])
    assert draws.min() >= 0
    assert draws.mean() == pytest.approx(1, abs=0.05)
    assert draws.std() == pytest.approx(deviation, abs=0.05)
