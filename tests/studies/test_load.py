"""The cases of a study, the scenarios of its runs, and the errors of an invalid one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import load
from testbed.studies import is_study, load_study
from testbed.studies.study import identity
from testbed.values.seeds import stream

WriteStudy = Callable[..., Path]


def test_a_study_is_the_product_of_its_factors_and_seeds(write_study: WriteStudy) -> None:
    study = load_study(write_study())
    assert [case.name for case in study.cases] == [
        *("rate 0.1, two", "rate 0.1, four", "rate 0.01, two", "rate 0.01, four")
    ]
    assert [(run.case.name, run.seed) for run in study.runs[:3]] == [
        *(("rate 0.1, two", 1), ("rate 0.1, two", 2), ("rate 0.1, four", 1))
    ]
    last = study.runs[-1].scenario
    assert (last.seed, last.workers.count, last.workers.batch_size) == (2, 4, 5)
    assert last.algorithm.model_dump()["learning_rate"] == 0.01
    assert study.runs[-1].base_name == "rates-0-01-four-s2"


def test_cases_are_picked_by_products_of_levels(write_study: WriteStudy) -> None:
    chosen = (
        "cases: [{rate: 0.1, workers: [two, four]}, {rate: 0.01, workers: two}, {workers: two}]"
    )
    study = load_study(write_study(chosen))
    assert [case.name for case in study.cases] == [
        *("rate 0.1, two", "rate 0.1, four", "rate 0.01, two")
    ]


def test_an_inline_scenario_and_its_own_seed(write_study: WriteStudy) -> None:
    text = """\
name: inside
scenario:
  seed: 7
  name: base
  model: digits-cnn
  dataset: digits
  workers: {count: 2}
  stop: {updates: 60}
vary:
  algorithm: [algorithm=asgd, algorithm=adacomp]
"""
    study = load_study(write_study(text=text))
    assert [run.seed for run in study.runs] == [7, 7]
    assert [run.scenario.algorithm.name for run in study.runs] == ["asgd", "adacomp"]


def test_a_scaled_study_differs_only_in_length(write_study: WriteStudy) -> None:
    whole, tenth = load_study(write_study()), load_study(write_study(), scale=0.1)
    scenario = tenth.runs[0].scenario
    assert (scenario.stop.updates, scenario.evaluate.every) == (6, 2)
    changes = {"stop": whole.runs[0].scenario.stop, "evaluate": whole.runs[0].scenario.evaluate}
    assert scenario.model_copy(update=changes) == whole.runs[0].scenario
    assert tenth.runs[0].base_name == "rates-0-1-two-x0-1-s1"
    assert load_study(write_study(), scale=0.001).runs[0].scenario.stop.updates == 1


def test_runs_on_a_gpu_are_refused_without_one(write_study: WriteStudy) -> None:
    path = write_study()
    place = "  place: {here: evaluate.every=20, there: 'runtime={simulated: {device: cuda}}'}\n"
    path.write_text(path.read_text().replace("seeds", f"{place}seeds"))
    assert len(load_study(path).runs) == 16
    asked = []

    def has_cuda() -> bool:
        asked.append(path)
        return False

    with pytest.raises(ScenarioError) as refused:
        load_study(path, has_cuda=has_cuda)
    assert [(one.line, one.path, one.found) for one in refused.value.problems] == [
        (8, "runtime.simulated.device", "cuda")
    ]
    assert len(asked) == 1  # for eight runs


def test_a_scaled_study_evaluates_on_fewer_images(write_study: WriteStudy) -> None:
    """A hundredth of 5,000 would be 50: at least a hundred are used. A longer study uses all."""
    text = "name: one\nscenario: base.yaml\nvary: {a: {b: evaluate.images=5000}}\nseeds: [1, 2]\n"
    file = write_study(text=text)
    images = [
        load_study(file, scale=scale).runs[0].scenario.evaluate.images for scale in (0.1, 0.01, 2)
    ]
    assert images == [500, 100, 5000]


def test_times_are_scaled_too_and_accuracies_are_not(write_study: WriteStudy) -> None:
    timed = ["stop={time: 10s, steps: 500, accuracy: 0.9}", "evaluate.every=2s"]
    text = f"name: timed\nscenario: base.yaml\nseeds: [1, 2]\nvary: {{a: {{b: {timed}}}}}\n"
    scenario = load_study(write_study(text=text), scale=0.5).runs[0].scenario
    assert (scenario.stop.time, scenario.stop.steps, scenario.stop.accuracy) == (5.0, 250, 0.9)
    assert scenario.evaluate.every == 1.0


def test_a_run_is_identified_by_its_scenario_without_its_name(write_study: WriteStudy) -> None:
    study = load_study(write_study())
    first, second = study.runs[0], study.runs[1]
    assert first.identity != second.identity
    renamed = first.scenario.model_copy(update={"name": "other"})
    assert identity(renamed, {}) == first.identity


def test_a_run_is_also_identified_by_the_users_own_files(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    net = tmp_path / "net.py"
    custom = '\nvary: {model: ["model={custom: {file: net.py, class: Net}}", model=digits-cnn]}\n'
    net.write_text("Net = 1")
    file = write_study(text=f"name: nets\nscenario: base.yaml{custom}")
    before = load_study(file).runs[0].identity
    assert load_study(file).runs[0].identity == before
    net.write_text("Net = 2")
    assert load_study(file).runs[0].identity != before


def test_every_seed_is_checked(write_study: WriteStudy) -> None:
    """One of two workers is drawn to freeze; w1 leaves, so only the other can freeze."""
    faults = (
        "faults=[{freeze: {at: {time: 1s}, count: 1}}, {leave: {at: {time: 2s}, workers: [w1]}}]"
    )
    text = f'name: drawn\nscenario: base.yaml\nvary: {{a: {{b: ["{faults}"]}}}}\nseeds: %s\n'
    draws = {seed: int(stream(seed, "faults", "0").choice([0, 1], 1)[0]) for seed in range(20)}
    fits, unfit = ([seed for seed in draws if draws[seed] == worker] for worker in (0, 1))
    assert len(load_study(write_study(text=text % fits)).runs) == len(fits) > 1
    with pytest.raises(ScenarioError) as error:
        load_study(write_study(text=text % [*fits, *unfit]))
    (problem,) = error.value.problems
    assert problem.found == f"leave of w1, which is frozen, with seed {unfit[0]}"
    with pytest.raises(ScenarioError, match=r"leave of w1, which is frozen, expected"):
        load_study(write_study(text=text % unfit))  # with any seed


def test_a_part_of_a_study(write_study: WriteStudy) -> None:
    report = "report: {figures: {fig4: {where: {workers: four, rate: 0.1}}}}"
    study = load_study(write_study(report))
    assert [case.name for case in study.only("fig4").cases] == ["rate 0.1, four"]
    assert [case.name for case in study.only("0.01").cases] == ["rate 0.01, two", "rate 0.01, four"]
    with pytest.raises(ScenarioError, match=r"--only fig5: expected .* fig4, .*Did you mean fig4"):
        study.only("fig5")


def test_long_names_are_truncated_and_stay_distinct(write_study: WriteStudy) -> None:
    level = "a" * 39
    text = (
        "name: long\nscenario: base.yaml\nvary: {a: {"
        f"{level}1: workers.count=2, {level}2: workers.count=3}}, b: {{{level}1: seed=1}}}}"
    ).replace("seed=1", "workers.batch_size=3")
    names = [run.base_name for run in load_study(write_study(text=text)).runs]
    assert len(set(names)) == 2
    assert all(len(name) <= 60 for name in names)


def test_levels_with_similar_spellings_have_distinct_names(write_study: WriteStudy) -> None:
    """An interrupted run is looked up by its name, and must not be confused with another."""
    levels = '{S1: workers.count=2, "S1\'": workers.count=3}'
    file = write_study(text=f"name: one\nscenario: base.yaml\nvary: {{set: {levels}}}\n")
    names = [run.base_name for run in load_study(file).runs]
    assert names[0].startswith("one-s1-s")
    assert names[1].startswith(f"{names[0]}-")
    assert names == [run.base_name for run in load_study(file).runs]


def test_a_file_is_a_study_or_a_scenario(write_study: WriteStudy, tmp_path: Path) -> None:
    study, base = write_study(), tmp_path / "base.yaml"
    assert is_study(study)
    assert not is_study(base)
    with pytest.raises(ScenarioError, match=r"found a study, expected a scenario.*testbed sweep"):
        load(study)
    with pytest.raises(ScenarioError, match=r"found a scenario, expected a study.*testbed up"):
        load_study(base)


def test_a_level_without_settings_is_the_base_scenario(write_study: WriteStudy) -> None:
    levels = "vary: {net: {wifi: [], slow: workers.batch_size=5}}\n"
    wifi, slow = load_study(write_study(text=f"name: nets\nscenario: base.yaml\n{levels}")).runs
    assert (wifi.case.name, wifi.scenario.workers.batch_size) == ("wifi", 10)
    assert (slow.case.name, slow.scenario.workers.batch_size) == ("slow", 5)


HEAD = "name: bad\nscenario: base.yaml\n"
RATES = f"{HEAD}vary: {{rate: [algorithm.learning_rate=0.1, algorithm.learning_rate=0.2]}}\n"

BAD = {
    "a path that is no field": (
        f"{HEAD}vary:\n  rate:\n    - algorithm.rate=0.1\n    - algorithm.rate=0.2\n",
        "study.yaml:5: algorithm.rate: found an unknown key, expected one of learning_rate, name",
    ),
    "an expectation without a source": (
        f"{RATES}expects:\n  best:\n    measure: best_accuracy\n    where: {{rate: 0.1}}\n"
        "    value: 0.9\n    tolerance: 0.1\n",
        "study.yaml:5: expects.best.source: found no such key, expected text",
    ),
    "nothing that varies": (
        HEAD,
        "study.yaml:1: vary: found no `vary`, expected at least two runs",
    ),
    "one level": (
        f"{HEAD}vary: {{rate: [algorithm.learning_rate=0.1]}}\n",
        "study.yaml:3: vary: found nothing that varies, expected at least two runs",
    ),
    "no scenario": ("name: bad\nvary: {}\n", "study.yaml:1: scenario: found no such key"),
    "a scenario that is not there": (
        RATES.replace("base", "bass"),
        "study.yaml:2: scenario: found no file 'bass.yaml', expected a scenario's file",
    ),
    "no setting": (
        f"{HEAD}vary: {{rate: [faster, slower]}}\n",
        "study.yaml:3: vary.rate.0: found 'faster', expected path=value, like workers.count=5",
    ),
    "a seed as a setting": (
        f"{HEAD}vary: {{a: [seed=1, seed=2]}}\n",
        "study.yaml:3: vary.a.0: found 'seed=1', expected another path: seeds are listed",
    ),
    "a level that a later factor undoes": (
        f"{RATES.rstrip()[:-1]}, then: [algorithm=asgd]}}\n",
        "study.yaml:3: vary: found the same scenario for (rate 0.1, asgd) and (rate 0.2, asgd)",
    ),
    "a level twice": (
        f"{HEAD}vary: {{a: [workers.count=2, workers.batch_size=2]}}\n",
        "study.yaml:3: vary.a.1: found 2 again, expected each level once",
    ),
    "a level that YAML reads as a number": (
        f"{RATES.replace('0.1,', '0.10,')}cases: [{{rate: 0.10}}]\n",
        "study.yaml:4: cases.0.rate: found 0.1, expected a level of rate: 0.10, 0.2. "
        'Write "0.10" in quotes',
    ),
    "a case of no level": (
        f"{RATES}cases: [{{rate: 0.3}}]\n",
        "study.yaml:4: cases.0.rate: found 0.3, expected a level of rate: 0.1, 0.2",
    ),
    "a case of no factor": (
        f"{RATES}cases:\n  - {{rates: 0.1}}\n",
        "study.yaml:5: cases.0.rates: found rates, expected a factor of `vary`: rate. Did you mean",
    ),
    "an expectation of two cases": (
        f"{RATES}expects:\n"
        "  best: {measure: best_accuracy, value: 0.9, tolerance: 0.1, source: here}\n",
        "study.yaml:5: expects.best.where: found 2 cases (rate 0.1; rate 0.2), "
        "expected a combination of levels",
    ),
    "an expectation of nothing": (
        f"{RATES}expects:\n  best: {{measure: best_accuracy, source: here}}\n",
        "study.yaml:5: expects.best: found neither an order nor a value, expected one of",
    ),
    "a value without a tolerance": (
        f"{RATES}expects:\n  it: {{measure: updates, source: x, value: 3, where: {{rate: 0.1}}}}",
        "study.yaml:5: expects.it: found a value without a tolerance, expected a tolerance",
    ),
    "a share of zero": (
        f"{RATES}expects:\n"
        "  it: {measure: waiting, source: x, value: 0, tolerance: 0.1, where: {rate: 0.1}}",
        "study.yaml:5: expects.it: found a tolerance of 10 % of 0, which is 0, expected `at_most`",
    ),
    "a limit with a tolerance": (
        f"{RATES}expects:\n"
        "  it: {measure: updates, source: x, at_most: 3, tolerance: 0.1, where: {rate: 0.1}}",
        "study.yaml:5: expects.it: found a tolerance of at_most, expected a tolerance only of a",
    ),
    "a difference of never": (
        f"{RATES}expects:\n"
        "  it: {measure: updates, source: x, value: never, difference: [{rate: 0.1}, {rate: 0.2}]}",
        "study.yaml:5: expects.it: found a difference of never, expected `never` of one case",
    ),
    "a ratio and a difference": (
        f"{RATES}expects:\n  it: {{measure: updates, source: x, value: 1, tolerance: 0.1,"
        " ratio: [{rate: 0.1}, {rate: 0.2}], difference: [{rate: 0.1}, {rate: 0.2}]}",
        "study.yaml:5: expects.it: found value and ratio and difference, expected one of order",
    ),
    "no measure": (
        f"{RATES}report:\n  tables:\n    one: {{measures: [best]}}\n",
        "study.yaml:6: report.tables.one.measures.0: found 'best', expected a measure: final_acc",
    ),
    "a baseline of no level": (
        f"{RATES}seeds: [1, 2]\n"
        "report: {tables: {one: {measures: [updates], baseline: {rate: 0.3}}}}\n",
        "study.yaml:5: report.tables.one.baseline.rate: found 0.3, expected a level of rate: 0.1",
    ),
    "a baseline without another case": (
        f"{RATES}seeds: [1, 2]\n"
        "report: {tables: {one: {measures: [updates], where: {rate: 0.1}, baseline: {rate: 0.1}}}}",
        "study.yaml:5: report.tables.one.baseline: found nothing to compare, expected levels that",
    ),
    "a baseline with one seed": (
        f"{RATES}report: {{tables: {{one: {{measures: [updates], baseline: {{rate: 0.1}}}}}}}}\n",
        "study.yaml:4: report.tables.one.baseline: found a baseline with one seed, expected at "
        "least 2 seeds, as the differences are tested. seeds: [1, 2, 3, 4, 5]",
    ),
    "a confidence in percent": (
        f"{RATES}report: {{interval: t, confidence: 95}}\n",
        "study.yaml:4: report.confidence: found 95, expected",
    ),
    "a panel of no factor": (
        f"{RATES}report: {{figures: {{one: {{panels: [law]}}}}}}\n",
        "study.yaml:4: report.figures.one.panels.0: found 'law', expected a factor of `vary`: rate",
    ),
    "a seed twice": (
        f"{RATES}seeds: [1, 2, 1]\n",
        "study.yaml:4: seeds.2: found 1 again, expected each seed once",
    ),
    "an unknown key": (f"{RATES}expect: {{}}\n", "Did you mean expects?"),
    "a table named for a file of the report": (
        f"{RATES}report: {{tables: {{runs: {{measures: [updates]}}}}}}\n",
        "study.yaml:4: report.tables.runs: found runs, expected another name",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BAD.values(), ids=BAD.keys())
def test_errors_name_their_line(
    text: str, expected: str, write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_study(text=text)
    monkeypatch.chdir(file.parent)
    with pytest.raises(ScenarioError) as refused:
        load_study(file.name)
    assert refused.value.exit_code == 2
    assert expected in str(refused.value)


def test_errors_in_an_inline_scenario_name_their_line(
    write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """\
name: inside
scenario:
  name: base
  algorithm: asgd
  model: digits-cnn
  dataset: digits
  workers: {cont: 2}
  stop: {updates: 60}
seeds: [1, 2]
"""
    file = write_study(text=text)
    monkeypatch.chdir(file.parent)
    with pytest.raises(
        ScenarioError, match=r"study.yaml:7: workers.cont: found an unknown"
    ) as told:
        load_study(file.name)
    assert len(told.value.problems) == 2  # count is missing as well; each is reported once
