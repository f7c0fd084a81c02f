"""``--set path=value``."""

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import Override, Scenario, load_text


def changed(text: str, *options: str) -> Scenario:
    return load_text(text, file="s.yaml", overrides=[Override.parse(option) for option in options])


def refusal(text: str, *options: str) -> str:
    with pytest.raises(ScenarioError) as refused:
        changed(text, *options)
    return str(refused.value)


def test_a_value_is_replaced_and_a_new_one_is_set(small: str) -> None:
    scenario = changed(small, "workers.count=8", "stop.time=10min", "ps.link.up.rate=100mbit")
    assert scenario.workers.count == 8
    assert str(scenario.stop.time) == "10min"
    assert str(scenario.ps.link.up.rate) == "100mbit"


def test_the_last_of_two_wins(small: str) -> None:
    assert changed(small, "seed=1", "seed=2").seed == 2


@pytest.mark.parametrize(
    "written",
    ["adacomp", "{adacomp: null}", "{adacomp: {ratio: 0.5}}", "{name: adacomp, ratio: 0.5}"],
)
@pytest.mark.parametrize("path", ["algorithm.ratio", "algorithm"])
def test_an_option_of_a_member_in_any_form(small: str, written: str, path: str) -> None:
    text = small.replace("algorithm: adacomp", f"algorithm: {written}")
    value = "0.25" if path.endswith("ratio") else "{adacomp: {ratio: 0.25}}"
    assert changed(text, f"{path}={value}") == changed(small, "algorithm.ratio=0.25")


def test_the_path_may_include_the_name_of_the_member(small: str) -> None:
    text = small.replace("algorithm: adacomp", "algorithm: {adacomp: {ratio: 0.5}}")
    scenario = changed(text, "algorithm.adacomp.ratio=0.25")
    assert scenario == changed(small, "algorithm.ratio=0.25")


def test_a_member_inside_a_member(small: str) -> None:
    scenario = changed(small, "dataset.partition=dirichlet", "dataset.partition.alpha=0.1")
    expected = "{digits: {partition: {dirichlet: {alpha: 0.1}}}}"
    assert scenario == load_text(small.replace("dataset: digits", f"dataset: {expected}"))


def test_another_member_by_name(small: str) -> None:
    assert changed(small, "algorithm.name=asgd").algorithm.name == "asgd"


def test_an_item_of_a_list_by_its_number(small: str) -> None:
    text = f"{small}evaluate: {{metrics: [top1, {{top_k: {{k: 3}}}}]}}\n"
    scenario = changed(text, "evaluate.metrics.0=top5", "evaluate.metrics.1.k=4")
    expected = "[top5, {top_k: {k: 4}}]"
    assert scenario == changed(small, f"evaluate.metrics={expected}")
    assert "evaluate.metrics.1.l: found an unknown key" in refusal(text, "evaluate.metrics.1.l=4")
    for key in ("2", "top1"):
        assert (
            f"expected an item's number, 0 to 1, in place of `{key}`, or the whole list"
            in refusal(text, f"evaluate.metrics.{key}=top5")
        )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("workers.cuont=5", "workers.cuont: found an unknown key"),
        ("worker.count=5", "worker: found an unknown key"),
        ("workers.count=0", "workers.count: found 0, expected a whole number of at least 1"),
        ("algorithm.ration=1", "algorithm.ration: found an unknown key"),
        ("algorithm.adacomp.ratio=1", "algorithm.adacomp: found an unknown key"),
        ("name.first=x", "name: found 'small', expected a mapping, to set `first` in it"),
        ("faults.0.at=3s", "faults: found no items, expected the whole list: faults=[...]"),
        ("stop={time: 5}", "stop.time: found 5, a number without a unit"),
        ("seed=[", "found broken YAML"),
        ("seed=!!int 3", "found the tag !!int"),
        ("seed=.inf", "found .inf, expected a finite number"),
        ("seed=\x01", "found the character U+0001"),
        ("seed", "found no path=value, expected path=value, like --set workers.count=5"),
        ("=3", "found no path=value"),
        (".=3", "found no path=value"),
        ("a" + ".a" * 5000 + "=3", "found no path=value"),
    ],
)
def test_errors_name_the_option(small: str, option: str, message: str) -> None:
    found = refusal(small, option)
    assert found.startswith(
        f"--set {option}: " if len(option) < 80 and option.isprintable() else "--set '"
    )
    assert message in found
    assert "\n" not in found


def test_the_nearest_key_is_suggested(small: str) -> None:
    assert refusal(small, "workers.cuont=5").endswith("Did you mean count?")


def test_a_changed_member_keeps_its_lines(small: str) -> None:
    text = small.replace("algorithm: adacomp", "algorithm:\n  adacomp:\n    ratoi: 0.5")
    found = refusal(text, "algorithm.ratio=0.2")
    assert found.startswith("s.yaml:4: algorithm.ratoi: found an unknown key")
