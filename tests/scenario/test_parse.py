"""YAML text to a document: bounds, aliases, merges, broken text; with both parsers of PyYAML."""

from typing import Any

import pytest
import yaml

from testbed.errors import ScenarioError
from testbed.scenario.document import Refused
from testbed.scenario.parse import MOST_NODES, parse_document

LOADERS = [yaml.SafeLoader] + ([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])


@pytest.fixture(params=LOADERS, ids=lambda loader: str(loader.__name__))
def loader(request: pytest.FixtureRequest) -> Any:
    return request.param


def problem_of(text: str, loader: Any) -> str:
    with pytest.raises(ScenarioError) as refused:
        parse_document(text, "x.yaml", loader=loader)
    return str(refused.value.problems[-1])


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_early(opening: str, loader: Any) -> None:
    assert "more than 32 levels of nesting" in problem_of(opening * 100_000, loader)


def test_every_use_of_an_alias_counts(loader: Any) -> None:
    row = ", ".join(["x"] * 100)
    uses = ", ".join(["*row"] * (MOST_NODES // 100))
    assert "more than 20,000 values" in problem_of(f"row: &row [{row}]\nuses: [{uses}]", loader)


def test_deeply_nested_aliases_are_refused(loader: Any) -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 60)]
    assert "more than 32 levels of nesting" in problem_of("\n".join(lines), loader)


def test_many_values_are_refused(loader: Any) -> None:
    text = "[" + ", ".join(["x"] * (MOST_NODES + 1)) + "]"
    assert "more than 20,000 values" in problem_of(text, loader)


def test_many_problems_end_the_parsing(loader: Any) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_document("a: 1\n" * 1000, "x.yaml", loader=loader)
    assert len(refused.value.problems) == 101
    assert str(refused.value.problems[-1]) == "x.yaml: and the rest was not read"


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: 1\nb: [1, 2\nc: 3\n", 3), ("a: 1\n  b: 2\n", 2), ("a: 'open\n", 2), ("a: @b\n", 1)],
)
def test_broken_text_has_a_line(text: str, line: int, loader: Any) -> None:
    message = problem_of(text, loader)
    assert "found broken YAML (" in message
    assert abs(int(message.split(":")[1]) - line) <= 1  # the two parsers differ by one


def test_tabs_are_named(loader: Any) -> None:
    found = problem_of("a:\n  b: 1\n\tc: 2\n", loader)
    assert "x.yaml:3:" in found
    assert "found a tab in front of the text, expected spaces for indentation" in found


def test_half_a_surrogate_pair_is_refused(loader: Any) -> None:
    try:
        document = parse_document('a: "\\ud800"', "x.yaml", loader=loader)
    except ScenarioError:
        return  # the parser in C refuses the escape itself
    assert isinstance(document.at(("a",)), Refused)
    assert "half of a surrogate pair" in str(document.problems[0])


def test_a_merge_adds_missing_keys(loader: Any) -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\nx:\n  b: 5\n  <<: [*base, *more]\n"
    document = parse_document(text, "x.yaml", loader=loader)
    assert list(document.at(("x",)).items()) == [("b", 5), ("a", 1), ("c", 4)]
    assert [document.origin(("x", key)).line for key in "bac"] == [4, 1, 2]
    assert document.problems == ()


def test_a_key_may_be_an_alias_but_never_a_collection(loader: Any) -> None:
    document = parse_document("a: &x foo\nb: &y 5\n*x : 1\n*y : 2\n", "x.yaml", loader=loader)
    assert document.data == {"a": "foo", "b": 5, "foo": 1, "5": 2}
    refused = parse_document("a: 1\n? !t [b]\n: 2\n", "x.yaml", loader=loader)
    assert refused.data == {"a": 1}
    assert "x.yaml:2: found a list or a mapping as a key" in str(refused.problems[-1])


def test_a_quoted_merge_key_is_a_key_like_any_other(loader: Any) -> None:
    document = parse_document('"<<": {a: 1}', "x.yaml", loader=loader)
    assert document.data == {"<<": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+4", 4),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("true", True),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("0777", "0777"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0x1f", "0x1f"),
        ("2024-01-01", "2024-01-01"),
        (".e5", ".e5"),
        (".", "."),
        ("+", "+"),
        ("e5", "e5"),
        ("=", "="),
        ("'12'", "12"),
        ("1" * 500, "1" * 500),
    ],
)
def test_plain_scalars(text: str, value: object) -> None:
    found = parse_document(f"a: {text}", "x.yaml").data["a"]
    assert found == value
    assert type(found) is type(value)
