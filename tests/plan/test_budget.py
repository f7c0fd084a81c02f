"""The expected requirements of a plan."""

from pathlib import Path
from typing import Any

import pytest

from testbed.datasets import Dataset
from testbed.models import Model
from testbed.plan.budget import Budget, budget, count_parameters
from testbed.plan.make import plan
from testbed.scenario import load_text
from testbed.scenario.schema_node import SchemaNode

TEXT = """\
name: planned
algorithm: asgd
model: adacomp-cnn
dataset: mnist
workers:
  count: 200
  think: {mean: 100ms}
  classes: {fast: {share: 0.5, speed: 100ms, cpu: 0.25}, slow: {share: 0.5, speed: 900ms}}
stop: {updates: 100}
"""


def needs(text: str) -> Budget:
    scenario = load_text(text)
    return budget(scenario, plan(scenario, "r"), count_parameters(scenario))


def test_an_engine_needs_memory_for_every_container() -> None:
    native, docker = needs(TEXT), needs(TEXT + "runtime: docker\n")
    assert docker.node_bytes["worker"] - native.node_bytes["worker"] == 8_000_000
    assert docker.total_bytes - native.total_bytes == 203 * 8_000_000  # with PS, evaluator, agent


def test_memory_of_the_paper_s_model_on_two_hundred_workers() -> None:
    """A vector has 211,690 x 4 = 846,760 bytes; the PS keeps one per worker and six more."""
    found = needs(TEXT)
    assert found.parameters == 211_690
    assert found.node_bytes["worker"] == 20_000_000 + 4 * 846_760
    assert found.node_bytes["ps"] == 20_000_000 + 206 * 846_760
    each = found.node_bytes
    parts = 200 * each["worker"] + each["ps"] + each["evaluator"] + found.agent_bytes
    assert found.total_bytes == parts
    assert 4e9 < found.total_bytes < 6e9


def test_cold_workers_need_a_whole_interpreter_each() -> None:
    found = needs(f"{TEXT}launch: cold\n")
    assert found.node_bytes["worker"] == 150_000_000 + 4 * 846_760
    assert found.agent_bytes == 0


def test_cpu_limits_are_summed() -> None:
    found = needs(TEXT)
    assert found.cpu_limits == 25  # 100 x 0.25
    assert found.unlimited_nodes == 102


def test_pace() -> None:
    """100 workers cycle in 0.2 s and 100 in 1 s, and emulated time runs four times as fast."""
    assert needs(f"{TEXT}time_scale: 4\n").updates_per_second == pytest.approx(4 * (500 + 100))


def test_workers_without_durations_have_no_pace() -> None:
    text = TEXT.replace("  think: {mean: 100ms}\n", "").replace("speed: 100ms, ", "")
    assert needs(text).updates_per_second is None


def test_a_custom_model_has_an_unknown_size() -> None:
    text = TEXT.replace("adacomp-cnn", "{custom: {file: net.py, class: Net}}")
    assert needs(text).parameters is None


MEMBERS: list[Any] = [name for name in SchemaNode(Model).members if name != "custom"]


OF_OWN_FILES = ("custom", "huggingface", "leaf", "parquet", "text")
"""Data sets whose shape is known once their files are read."""

DATASETS = [name for name in SchemaNode(Dataset).members if name not in OF_OWN_FILES]

OF_NUMBERS = ("lstm", "linear-svm", "substitute-rail", "substitute-chiller")
"""Models that predict numbers, and the data sets that have some."""

OF_TOKENS = ("char-lstm", "gpt", "made-text")
"""Models that predict tokens, and the data set that has some: all others have labels."""

PAIRS = [
    (model, dataset)
    for model in [*MEMBERS, {"mlp": {"hidden": [30]}}]
    for dataset in DATASETS
    if (model in OF_NUMBERS) == (dataset in OF_NUMBERS)
    and (model in OF_TOKENS) == (dataset in OF_TOKENS)
]


@pytest.mark.parametrize(("model", "dataset"), PAIRS, ids=str)
def test_sizes_match_the_networks(model: Any, dataset: str) -> None:
    scenario = load_text(TEXT.replace("adacomp-cnn", str(model)).replace("mnist", dataset))
    assert scenario.dataset.images is not None, f"add the shape of its images to {dataset}.py"
    shape, classes = scenario.dataset.images
    network = scenario.model.build(shape, classes, folder=Path())
    assert count_parameters(scenario) == network.layout.size, f"check parameters() of {model}"
