"""The JSON schema, and every shipped scenario by it."""

from os.path import relpath
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from testbed.scenario.flower import WorkloadFile
from testbed.scenario.load_workload import load_any
from testbed.scenario.schema import Scenario
from testbed.scenario.source import shipped, shipped_studies
from testbed.studies import is_study, load_study
from testbed.studies.document import StudyDocument
from testbed.studies.json_schema import file_schema, json_schema, model_schema

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SHIPPED = sorted(shipped().values())
STUDIES = sorted(shipped_studies().values())


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> Draft202012Validator:
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_schema_has_descriptions(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == "urn:edge-testbed:scenario:1"
    for kind in ("Scenario", "Workload", "Study"):
        for name, key in schema["$defs"][kind]["properties"].items():
            assert key.get("description"), name
    rate = schema["$defs"]["TracedDirection"]["properties"]["rate"]
    assert rate["description"].startswith("bits per second of Ethernet frames")


def test_what_repeats_is_defined_once(schema: dict[str, Any]) -> None:
    algorithms = [schema["$defs"][name]["properties"] for name in ("FedAvg", "FedOpt", "DiLoCo")]
    for options in algorithms:
        assert options["optimizer"]["$ref"] == "#/$defs/Optimizer"
        assert options["schedule"]["$ref"] == "#/$defs/Schedule"
    full, names, short = schema["$defs"]["Optimizer"]["anyOf"]
    assert "oneOf" in full
    assert "adam" in names["enum"]
    assert "adam" in short["properties"]


def test_no_name_is_defined_by_scenarios_and_by_studies(schema: dict[str, Any]) -> None:
    """The schema has the definitions of both, and one for each kind of file."""
    studies = {"Study", *model_schema(StudyDocument)["$defs"]}
    scenarios = {*file_schema(Scenario)["$defs"], *file_schema(WorkloadFile)["$defs"]}
    assert studies & scenarios == set()
    assert schema["$defs"].keys() == studies | scenarios | {"Scenario", "Workload"}


def test_the_shipped_files_are_all_files() -> None:
    """They are told apart by their text; ``is_study`` reads them as YAML."""
    assert sorted([*SHIPPED, *STUDIES]) == sorted(SCENARIOS.rglob("*.yaml"))
    assert [file for file in SHIPPED if is_study(file)] == []
    assert [file for file in STUDIES if not is_study(file)] == []


@pytest.mark.parametrize(
    "file", [*SHIPPED, *STUDIES], ids=lambda file: str(file.relative_to(SCENARIOS))
)
def test_a_shipped_file_is_valid_and_names_its_schema(
    file: Path, validator: Draft202012Validator
) -> None:
    text = file.read_text(encoding="utf-8")
    where = relpath(SCENARIOS / "schema.json", file.parent)
    where = where if where.startswith("..") else f"./{where}"
    assert text.startswith(f"# yaml-language-server: $schema={where}\n")
    validator.validate(yaml.safe_load(text))
    if file in STUDIES:
        load_study(file)
    elif file.parent.name != "flower":  # which needs an environment: tests/e2e/test_flower.py
        load_any(file)


def test_a_study_may_have_an_inline_scenario(small: str, validator: Draft202012Validator) -> None:
    study = {"name": "inside", "scenario": yaml.safe_load(small), "seeds": [1, 2]}
    validator.validate(study)
    del study["scenario"]["algorithm"]  # the study may vary it
    varied = {**study, "vary": {"algorithm": ["algorithm=asgd", "algorithm=bsp"]}}
    validator.validate(varied)
    study["scenario"]["workers"]["cuont"] = 3
    assert not validator.is_valid(study)
    assert not validator.is_valid({"name": "none", "vary": {}})


def test_the_small_scenario_passes(small: str, validator: Draft202012Validator) -> None:
    validator.validate(yaml.safe_load(small))
    validator.validate({**yaml.safe_load(small), "version": 1, "x-links": [1], "name": "a.b_c"})


def test_only_a_scenario_that_extends_another_may_omit_required_keys(
    small: str, validator: Draft202012Validator
) -> None:
    validator.validate(
        {"extends": "a.yaml", "workers": {"batch_size": 5, "think": {"law": "exponential"}}}
    )
    assert not validator.is_valid({"extends": 5})
    assert not validator.is_valid({"name": "a"})
    whole = yaml.safe_load(small)
    for broken in ({"batch_size": 5}, {"count": 2, "think": {"law": "exponential"}}):
        assert not validator.is_valid({**whole, "workers": broken})
    validator.validate({**whole, "workers": {"count": 2, "think": None}})


@pytest.mark.parametrize("key", ["rate", "delay"])
@pytest.mark.parametrize("place", ["a class", "ps"])
def test_what_a_value_is_short_for_has_its_required_keys(
    place: str, key: str, small: str, validator: Draft202012Validator
) -> None:
    def linked(value: object) -> dict[str, Any]:
        link = {"link": {"down": {key: value}, "up": {key: value}}}
        if place == "ps":
            return {**yaml.safe_load(small), "ps": link}
        return {**yaml.safe_load(small), "workers": {"count": 2, "classes": {"a": link}}}

    mean = {"rate": "1mbit", "delay": "5ms"}[key]
    table = {"file": "a.csv", "column": "b"}
    drawn = {"each": "exponential", "mean": mean}
    for whole in (mean, None, {"trace": "a.csv"}, drawn, {"table": table}):
        validator.validate(linked(whole))
    for part in ({}, {"column": "b"}, {"mean": mean}, {"each": "exponential"}):
        assert not validator.is_valid(linked(part)), part
    for part in ({}, {"file": "a.csv"}, {"column": "b"}):
        assert not validator.is_valid(linked({"table": part})), part


def test_the_keys_of_every_kind_are_proposed_in_a_new_file(schema: dict[str, Any]) -> None:
    """Before a file has a key, an editor knows the root's properties and a scenario's."""
    for key in ("scenario", "vary", "workload"):
        assert schema["properties"][key].keys() == {"description"}


def test_inherited_keys_are_described_too(schema: dict[str, Any]) -> None:
    """An algorithm's own words replace those of its base; every option has some."""
    definitions = schema["$defs"]
    fedavg = definitions["FedAvg"]["properties"]
    assert fedavg["learning_rate"]["description"] == "η, the workers' learning rate."
    assert fedavg["proximal"]["description"].startswith("μ; adds μ (w - w_0)")
    lacking = [
        (name, key)
        for name, kind in definitions.items()
        if "custom" not in kind.get("title", "").lower()
        for key, part in kind.get("properties", {}).items()
        if "description" not in {**definitions.get(part.get("$ref", "")[8:], {}), **part}
        and "const" not in part
    ]
    assert lacking == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "Not A Name"),
        ("version", 2),
        ("y-links", {}),
        ("algorithm", "adagrad"),
        ("algorithm", {"adacomp": {"ratio": 2}}),
        ("algorithm", {"fedavg": {"name": "fedavg"}}),
        ("algorithm", {"adacomp": {"name": "adacomp", "ratio": 0.1}}),
        ("stop", {"updates": 0}),
        ("stop", {"time": "30"}),
        ("workers", {"count": 0}),
        ("workers", {"count": 1, "think": {"law": "poisson", "mean": "5ms"}}),
        ("faults", [{"explode": {"at": {"time": "3s"}}}]),
        ("time_scale", "auto"),
    ],
)
def test_the_schema_refuses_what_loading_refuses(
    key: str, value: object, small: str, validator: Draft202012Validator
) -> None:
    data: dict[str, Any] = {**yaml.safe_load(small), key: value}
    assert not validator.is_valid(data)
