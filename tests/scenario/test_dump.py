"""A resolved scenario loads back to an equal one."""

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from testbed.scenario import Scenario, dump, load_text
from testbed.scenario.schema_node import SchemaNode

durations = st.integers(1, 10**9).map(lambda n: f"{n / 1000!r}ms")
intervals = st.integers(1, 10**6).map(lambda n: f"{n}ms")
rates = st.floats(0.01, 1000).map(lambda x: f"{x!r}mbit")
sizes = st.sampled_from(["64MiB", "1.5GB", "100000000B"])
shares = st.floats(1e-6, 1)
laws = st.sampled_from(["constant", "exponential", '"uniform(0.25,1.75)"', '"normal(1,0.2)"'])
names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,39}", fullmatch=True) | st.sampled_from(
    ["null", "true", "no", "1e3", "0", "1e30", "010", "0x1f", "2024-01-01", "1-1"]
)


def mapping(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


directions = mapping(rate=rates, delay=st.just("20ms"), loss=st.floats(1e-6, 0.5))
links = mapping(up=directions, down=directions)
cpus = st.floats(0.01, 64)
cpusets = st.sampled_from(["0", "3", "0-1", "0,2", "5,1-3"])
devices = mapping(speed=durations, link=links, cpu=cpus, cpuset=cpusets, memory=sizes)
algorithms = st.one_of(
    st.just("asgd"),
    shares.map(lambda ratio: {"adacomp": {"ratio": ratio}}),
    shares.map(lambda ratio: {"name": "comp-asgd", "ratio": ratio, "select": "random"}),
)
models = st.one_of(
    st.sampled_from(["digits-cnn", "adacomp-cnn"]),
    st.lists(st.integers(1, 600), min_size=1, max_size=3).map(lambda h: {"mlp": {"hidden": h}}),
    st.just({"custom": {"file": "no.py", "class": "null"}}),
)
datasets = st.fixed_dictionaries(
    {"name": st.sampled_from(["digits", "mnist"])},
    optional={
        "fraction": shares,
        "partition": st.sampled_from(
            ["iid", "by_label", {"by_size": {"exponent": 0.5}}, {"dirichlet": {"alpha": 0.3}}]
        ),
    },
)


def measured(data: dict[str, Any]) -> dict[str, Any]:
    """A target accuracy needs evaluations: at the default interval."""
    return {key: data[key] for key in data if key != "evaluate" or "accuracy" not in data["stop"]}


scenarios = st.fixed_dictionaries(
    {
        "name": names,
        "algorithm": algorithms,
        "model": models,
        "dataset": datasets,
        "workers": st.fixed_dictionaries(
            {"count": st.integers(1, 1022)},
            optional={
                "batch_size": st.integers(1, 1000),
                "think": st.fixed_dictionaries({"mean": durations}),
                "classes": st.tuples(names, devices).map(lambda pair: dict([pair])),
            },
        ),
        "stop": st.fixed_dictionaries(
            {"updates": st.integers(2, 10**12)}, optional={"time": durations, "accuracy": shares}
        ),
    },
    optional={
        "seed": st.integers(0, 2**63 - 1),
        "ps": mapping(link=links, cpu=cpus, cpuset=cpusets, memory=sizes),
        "network": mapping(
            missing=st.sampled_from(["fail", "warn"]), offload=st.sampled_from(["auto", "on"])
        ),
        "evaluate": mapping(every=intervals | st.integers(1, 10**6), images=st.integers(1, 9999)),
        "launch": st.sampled_from(["warm", "cold"]),
        "time_scale": st.floats(0.1, 10),
    },
).map(measured)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=scenarios)
def test_a_dumped_scenario_loads_back_equal(data: dict[str, Any]) -> None:
    scenario = Scenario.model_validate(data)
    text = dump(scenario)
    assert load_text(text) == scenario
    assert dump(load_text(text)) == text


def test_every_default_is_written(small: str) -> None:
    written = yaml.safe_load(dump(load_text(small)))
    assert written["algorithm"]["name"] == "adacomp"
    metrics = [{"name": "top1"}, {"name": "top5"}]
    default = {"every": 5, "gpus": 0, "images": 2000, "metrics": metrics, "timeout": "10min"}
    assert written["evaluate"] == default
    assert written["workers"]["batch_size"] == 10
    assert written["runtime"] == {"name": "native"}


def test_none_is_always_the_default() -> None:
    """None is not written, so it must be the meaning of a missing key."""
    for model in models_inside(SchemaNode(Scenario), set()):
        for name, field in model.model_fields.items():
            allows_none = type(None) in getattr(field.annotation, "__args__", ())
            if allows_none and field.default is not PydanticUndefined:
                assert field.default is None, f"{model.__name__}.{name}"


def models_inside(place: SchemaNode, seen: set[type[BaseModel]]) -> set[type[BaseModel]]:
    for option in place.options:
        for key, inside in option.fields.items():
            seen.add(option.bare)
            entered = option.enter(key) or inside
            models_inside(entered, seen)
            models_inside(entered.enter("any") or SchemaNode(int), seen)
    return seen
