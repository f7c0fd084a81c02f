"""Valid scenarios, and their loaded values."""

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.runtimes import Native
from testbed.scenario import dump, load, load_text
from testbed.values.laws import Law
from testbed.values.units import Duration, Rate


def test_a_minimal_scenario() -> None:
    scenario = load_text(
        "{name: a, algorithm: asgd, model: digits-cnn, dataset: digits,"
        " workers: {count: 3}, stop: {updates: 5}}"
    )
    assert scenario.runtime == Native(name="native")
    assert scenario.workers.class_counts() == {"default": 3}
    assert scenario.time_scale == 1.0
    assert scenario.launch == "warm"
    assert scenario.network.missing == "fail"
    assert scenario.evaluate.every == 1
    assert not scenario.is_paced


def test_quantities_and_laws_have_their_types(small: str) -> None:
    scenario = load_text(
        small.replace("count: 4", "count: 4\n  think: {law: exponential, mean: 30ms}")
    )
    think = scenario.workers.think
    assert think is not None
    assert (think.law, think.mean) == (Law("exponential"), Duration(0.03))
    assert scenario.workers.classes["fast"].link.up.rate == Rate(10e6)
    assert scenario.is_paced
    assert not scenario.model_copy(update={"paced": False}).is_paced


@pytest.mark.parametrize(
    "algorithm", ["adacomp", "{adacomp: null}", "{adacomp: {}}", "{name: adacomp}"]
)
def test_every_form_of_a_member_is_equivalent(small: str, algorithm: str) -> None:
    text = small.replace("algorithm: adacomp", f"algorithm: {algorithm}")
    assert load_text(text) == load_text(small)


@pytest.mark.parametrize("every", ["500", "2min"])
def test_evaluations_are_spaced_by_updates_or_by_time(small: str, every: str) -> None:
    scenario = load_text(f"{small}evaluate: {{every: {every}}}\n")
    assert str(scenario.evaluate.every) == every


@pytest.mark.parametrize(
    ("stop", "algorithm", "every"),
    [
        ("updates: 2000", "asgd", 100),
        ("updates: 250000", "asgd", 1000),
        ("updates: 19", "asgd", 1),
        ("steps: 4000", "asgd", 200),
        ("steps: 4000", "{fixed-adacomm: {local_steps: 10}}", 20),
        ("updates: 100, steps: 1000", "{fixed-adacomm: {local_steps: 20}}", 2),
        ("time: 10min", "asgd", Duration(30)),
        ("time: 1s, updates: 400", "asgd", 20),
        ("accuracy: 0.9", "asgd", 100),
    ],
)
def test_a_curve_has_twenty_points_by_default(
    small: str, stop: str, algorithm: str, every: object
) -> None:
    text = small.replace("updates: 100", stop).replace("adacomp", algorithm)
    scenario = load_text(f"{text}evaluate: {{images: 50}}\n")
    assert (scenario.evaluate.every, scenario.evaluate.images) == (every, 50)
    assert load_text(dump(scenario)) == scenario


@pytest.mark.parametrize(
    ("count", "counts"),
    [(1, [0, 1, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (10, [3, 4, 3]), (200, [60, 80, 60])],
)
def test_every_worker_is_assigned_to_a_class(small: str, count: int, counts: list[int]) -> None:
    """30 %, 40 % and 30 %: remainders go to the largest, then to the first."""
    classes = "{a: {share: 0.3}, b: {share: 0.4}, c: {share: 0.3}}"
    head = small.partition("workers:")[0]
    text = f"{head}workers: {{count: {count}, classes: {classes}}}\nstop: {{updates: 1}}\n"
    assert list(load_text(text).workers.class_counts().values()) == counts


def test_three_thirds_add_up(small: str) -> None:
    head = small.partition("workers:")[0]
    third = "{share: 0.3333333}"
    classes = f"{{a: {third}, b: {third}, c: {third}}}"
    text = f"{head}workers: {{count: 1000, classes: {classes}}}\nstop: {{updates: 1}}\n"
    assert list(load_text(text).workers.class_counts().values()) == [334, 333, 333]


@pytest.mark.parametrize(
    ("classes", "counts"),
    [
        ("{a: {count: 10}, b: {count: 10}, c: {count: 10}}", [10, 10, 10]),
        ("{a: {count: 3}, b: {}}", [3, 27]),
        ("{a: {share: 0.5}, b: {count: 1}, c: {share: 0.5}}", [15, 1, 14]),
    ],
    ids=["counts alone", "the rest", "29 in halves"],
)
def test_classes_may_have_a_count(small: str, classes: str, counts: list[int]) -> None:
    head = small.partition("workers:")[0]
    text = f"{head}workers: {{count: 30, classes: {classes}}}\nstop: {{updates: 1}}\n"
    scenario = load_text(text)
    assert list(scenario.workers.class_counts().values()) == counts
    assert load_text(dump(scenario)) == scenario


def test_extra_keys_can_hold_anchors(small: str) -> None:
    aside = "x-slow: &slow {share: 0.5, speed: 50ms}\nx-more: {of: [any, 1, kind]}\n"
    text = aside + small.replace("{share: 0.5, speed: 50ms}", "*slow")
    assert load_text(text) == load_text(small)


@pytest.mark.parametrize("name", ["lr0.01_s1", "a", "0a", "a-b.c_d", "FedAvg_LR0.1"])
def test_names_of_sweep_runs_are_valid(small: str, name: str) -> None:
    assert load_text(small.replace("name: small", f"name: {name}")).name == name


@pytest.mark.parametrize("name", [".a", "_a", "-a", "a/b", "a b", "a" * 41])
def test_a_name_must_be_a_valid_folder_name(small: str, name: str) -> None:
    with pytest.raises(ScenarioError, match=r"like lr0\.01_s1"):
        load_text(small.replace("name: small", f"name: {name}"))


@pytest.mark.parametrize("version", ["1.0", "true", "'1'", "0", "null"])
def test_the_version_must_be_the_integer_one(small: str, version: str) -> None:
    assert load_text(f"version: 1\n{small}") == load_text(small)
    with pytest.raises(ScenarioError, match=r"scenario:1: version: found .*, expected `1`"):
        load_text(f"version: {version}\n{small}")


def test_a_custom_file_is_relative_to_the_scenario(tmp_path: Path, small: str) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(
        small.replace("digits-cnn", "{custom: {file: nets/mine.py, class: Net}}"), encoding="utf-8"
    )
    with pytest.raises(ScenarioError, match=r"scenario.yaml:3: model.custom.file: found no file"):
        load(file)
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "mine.py").write_text("class Net: ...\n")
    assert load(file).model.name == "custom"


def test_custom_files_may_be_elsewhere(tmp_path: Path, small: str) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(
        small.replace("digits-cnn", "{custom: {file: mine.py, class: Net}}"), encoding="utf-8"
    )
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "mine.py").touch()
    assert load(file, custom_files=tmp_path / "custom").model.name == "custom"


def test_twenty_thousand_unknown_keys_are_reported_quickly(small: str) -> None:
    keys = "\n".join(f"key{i}: 1" for i in range(5000))
    with pytest.raises(ScenarioError) as refused:
        load_text(f"{small}{keys}\n")
    assert len(refused.value.problems) == 101
    assert str(refused.value.problems[-1]) == "scenario: and 4,900 more problems"


def test_shares_rounded_to_three_digits_add_up(small: str) -> None:
    """19 classes of 1/19, as 0.0526: 0.9994 in total, two of 38 workers each; 0.33 is no third."""
    alike = ", ".join(f"c{number}: {{share: 0.0526}}" for number in range(19))
    text = small.replace("count: 4", "count: 38")
    head, _, tail = text.partition("  classes:")
    tail = tail[tail.index("stop:") :]
    counts = load_text(f"{head}  classes: {{{alike}}}\n{tail}").workers.class_counts()
    assert list(counts.values()) == [2] * 19
    thirds = ", ".join(f"{name}: {{share: 0.33}}" for name in "abc")
    with pytest.raises(ScenarioError, match=r"shares add up to 0\.99, expected shares that add"):
        load_text(f"{head}  classes: {{{thirds}}}\n{tail}")
