"""Messages and exit codes."""

import pytest

from testbed import errors
from testbed.errors import InvalidValue, Problem, ScenarioError, TestbedError, UserCodeError


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (
            Problem("a.yaml", 3, "stop.updates", "0", "at least 1"),
            "a.yaml:3: stop.updates: found 0, expected at least 1",
        ),
        (
            Problem("a.yaml", 3, "stop", "an unknown key", "`x`", "Did you mean x?"),
            "a.yaml:3: stop: found an unknown key, expected `x`. Did you mean x?",
        ),
        (Problem("a.yaml", 0, "", "a folder", "a file"), "a.yaml: found a folder, expected a file"),
        (Problem("--set a=1", 0, "a", "", "", "too much"), "--set a=1: a: too much"),
    ],
)
def test_a_problem_in_one_line(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_a_scenario_error_has_every_problem() -> None:
    problems = [Problem("a.yaml", line, "x", "1", "2") for line in (1, 2)]
    error = ScenarioError(problems)
    assert error.problems == tuple(problems)
    assert str(error).splitlines() == [str(problem) for problem in problems]


def test_a_hint_follows_the_message() -> None:
    assert (
        str(TestbedError("No such run.", hint="See: testbed ps")) == "No such run. See: testbed ps"
    )


def test_control_characters_are_escaped() -> None:
    error = UserCodeError("\x1b[31mred\x1b[0m\x9b1m", hint="a\x07b", trace="one\n\ttwo\x1b")
    assert str(error) == r"\x1b[31mred\x1b[0m\x9b1m a\x07b"
    assert error.trace == "one\n\ttwo\\x1b"


def test_an_invalid_value_may_provide_its_own_message() -> None:
    assert str(InvalidValue("5", "a rate")) == "found 5, expected a rate"
    assert str(InvalidValue("", "a rate")) == "expected a rate"


def test_every_class_has_its_own_exit_code_and_is_documented() -> None:
    classes = [TestbedError, *TestbedError.__subclasses__()]
    codes = [kind.exit_code for kind in classes]
    assert len(set(codes)) == len(codes)
    assert 6 not in codes  # a finished run without a valid verdict
    for kind in classes:
        assert f"{kind.__name__} " in str(errors.__doc__)
