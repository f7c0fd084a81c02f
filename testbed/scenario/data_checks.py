"""What an algorithm, a model and a data set require of one another, once all are loaded."""

from __future__ import annotations

from testbed.algorithms.base import AlgorithmConfig
from testbed.errors import ScenarioError
from testbed.models import Network
from testbed.scenario.metrics import clients_by
from testbed.scenario.schema import Scenario
from testbed.values.user_code import OwnCode


def require_algorithm(scenario: Scenario, algorithm: AlgorithmConfig) -> None:
    """Check that the algorithm, which may be the user's own, can do what the scenario asks of it.

    Raises:
        ScenarioError: it cannot.
    """
    if scenario.streams is not None and not algorithm.TAKES_STREAMS:
        expected = "none, or an algorithm whose config sets TAKES_STREAMS = True"
        raise ScenarioError.at("streams", "streams", expected)
    buffers = getattr(scenario.model, "buffers", "dropped")
    if buffers != "dropped" and not algorithm.AVERAGES_BUFFERS:
        expected = "dropped, or an algorithm whose config sets AVERAGES_BUFFERS = True"
        raise ScenarioError.at("model.buffers", buffers, expected)
    if clients_by("workers", scenario) is not None and not algorithm.WORKERS_EVALUATE:
        expected = "evaluator, or an algorithm whose config sets WORKERS_EVALUATE = True"
        raise ScenarioError.at("evaluate.metrics", "clients by workers", expected)


def require_batch(scenario: Scenario, least_samples: int) -> None:
    """Check that batches are large enough for the model.

    Raises:
        ScenarioError: they are not.
    """
    batch, model = scenario.workers.batch_size, scenario.model
    if batch < least_samples:
        name = model.class_name if isinstance(model, OwnCode) else model.name
        expected = f"at least {least_samples}: {name} cannot train on fewer, as with "
        raise ScenarioError.at("workers.batch_size", str(batch), f"{expected}nn.BatchNorm1d")


def require_targets(scenario: Scenario, network: Network, tokens: int) -> None:
    """Check that the outputs of the model are those of the targets.

    Args:
        scenario: names the model.
        network: the model.
        tokens: number of tokens of a target; 0 for labels and numbers.

    Raises:
        ScenarioError: they are not.
    """
    if network.tokens == tokens:
        return
    outputs = {0: "(b, classes)"}
    expected = f"{outputs.get(tokens, f'(b, {tokens}, classes)')}: {scenario.dataset.name} has "
    expected += "a target for each token" if tokens else "one target for each sample"
    found = f"outputs of shape {outputs.get(network.tokens, f'(b, {network.tokens}, classes)')}"
    raise ScenarioError.at("model", found, expected)
