"""Hundreds of damaged scenarios: each is accepted, or refused with a message of this package."""

import re
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.scenario import Override, load, load_text

SCENARIO = """\
name: fuzzed
seed: 3
runtime: {native: null}
algorithm: {comp-asgd: {ratio: 0.1, select: random}}
model: {mlp: {hidden: [32, 16]}}
dataset: {name: digits, fraction: 0.5, partition: {dirichlet: {alpha: 0.3}}}
ps: {link: {up: {rate: 100mbit, queue: 50ms}}, cpu: 1.5, memory: 64MiB}
workers:
  count: 6
  batch_size: 10
  think: {law: "uniform(0.5,1.5)", mean: 10ms}
  classes:
    fast: {share: 0.5, speed: 5ms, link: {up: {rate: 10mbit, delay: 5ms, jitter: 1ms}}}
    slow: &slow {share: 0.5, speed: 50ms, link: {down: {rate: 1mbit, loss: 0.01}}}
network: {missing: warn, offload: off}
stop: {updates: 100, time: 5min, accuracy: 0.9}
evaluate: {every: 30s, images: 100}
launch: cold
time_scale: 2.0
"""

NASTY: list[Any] = [
    None, True, 0, -1, 3, 10**18, 0.5, -0.0, 1e300, "", " ", "x", "auto", "0", "1e3", "5ms",
    "10mbit", "1KiB", "name", "custom", "adacomp", "\x85", "\u2028", "é" * 50,
    "x" * 3000, [], [1], [[]], {},
    {"name": None}, {"name": []}, {"name": "mlp"}, {"a": {"b": 1}}, {"custom": {"file": "a.py"}},
]  # fmt: skip
OWN_WORDS = re.compile(r"pydantic|https?://|Traceback|Input should|Field required|<object|Place\(")

COUNTED = settings(max_examples=250, deadline=None, derandomize=True, database=None)


def check(text: str) -> None:
    try:
        load_text(text, file="f.yaml")
    except ScenarioError as error:
        assert error.problems
        for problem in error.problems:
            assert not OWN_WORDS.search(str(problem)), problem
            assert problem.expected or problem.hint
            assert len(str(problem)) < 1000
            assert str(problem).isprintable()


def paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(data, dict | list):
        inside = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in inside:
            found += paths(value, (*path, key))
    return found


DATA = yaml.safe_load(SCENARIO.replace("offload: off", "offload: 'off'"))
PATHS = paths(DATA)[1:]


def mutate(data: Any, path: tuple[Any, ...], action: str, value: Any) -> Any:
    key, *rest = path
    copy = dict(data) if isinstance(data, dict) else list(data)
    if rest:
        copy[key] = mutate(data[key], tuple(rest), action, value)
    elif action == "replace":
        copy[key] = value
    elif action == "delete":
        del copy[key]
    elif isinstance(copy, dict):
        copy[f"{key}x" if action == "rename" else str(value)[:60]] = copy.pop(key)
    return copy


@COUNTED
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(PATHS),
            st.sampled_from(["replace", "replace", "delete", "rename", "key"]),
            st.sampled_from(NASTY),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_changed_values_and_keys(changes: list[tuple[Any, ...]]) -> None:
    data = DATA
    for path, action, value in changes:
        try:
            data = mutate(data, path, action, value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed this location
    check(yaml.safe_dump(data, allow_unicode=True))


@COUNTED
@given(
    cuts=st.lists(
        st.tuples(
            st.integers(0, len(SCENARIO)),
            st.integers(0, 12),
            st.sampled_from([*"[]{}:,&*!#'\"|>%@`-?~\n\t 0x\\", "<<: *slow", "---\n", "!!str "])
            | st.text(max_size=4),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_changed_text(cuts: list[tuple[int, int, str]]) -> None:
    text = SCENARIO
    for start, length, put in cuts:
        text = text[:start] + put + text[start + length :]
    check(text)


@COUNTED
@given(content=st.binary(max_size=200))
def test_any_bytes(content: bytes, tmp_path_factory: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    file.write_bytes(content)
    try:
        load(file)
    except ScenarioError as error:
        assert all(str(problem).isprintable() for problem in error.problems)


@COUNTED
@given(
    path=st.sampled_from([".".join(str(part) for part in path) for path in PATHS])
    | st.text(max_size=10),
    value=st.sampled_from([str(value) for value in NASTY]) | st.text(max_size=10),
)
def test_any_option(path: str, value: str) -> None:
    try:
        load_text(SCENARIO, overrides=[Override.parse(f"{path}={value}")])
    except ScenarioError as error:
        for problem in error.problems:
            assert not OWN_WORDS.search(str(problem)), problem
            assert str(problem).isprintable(), problem


def test_the_undamaged_scenario_is_valid() -> None:
    check(SCENARIO)
    load_text(SCENARIO)
