"""``testbed check``: tests a custom algorithm, model, data set or metric."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.custom import CustomAlgorithm, open_config
from testbed.algorithms.frame.contract import CheckResult, examine, run_checks
from testbed.algorithms.frame.own_model import ModelUnderTest, examine_model, noisy
from testbed.cli.options import overrides, settings_option
from testbed.datasets import CustomDataset, Prepared
from testbed.datasets import load as load_data
from testbed.datasets.custom import OwnTransform
from testbed.errors import AlgorithmError, Problem, ScenarioError
from testbed.host.isolation import Opened, run_isolated
from testbed.models import CustomModel, Network
from testbed.models.metrics.custom import CustomMetric, try_metric
from testbed.scenario import Scenario, load
from testbed.scenario.checks import require_targets
from testbed.scenario.override import Override
from testbed.scenario.own_code import own_code
from testbed.scenario.source import find_scenario
from testbed.values.user_code import UserCode

CheckReport = tuple[str, list[tuple[str, str, str]]]
"""A title, and the result for each promise."""


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@settings_option
def command(file: Path, settings: tuple[str, ...]) -> int:
    """Test that custom code fulfils the contract of an algorithm, a model, a data set or a metric.

    FILE is a Python file, or a scenario with a custom algorithm, model, data set or metric. All
    algorithms in a Python file are tested. --set sets an option of the algorithm, like
    learning_rate=0.05; in a scenario it is algorithm.learning_rate=0.05. Exits with 10 if a rule of
    the contract is violated.
    """
    asked = overrides(settings)
    broken = False
    for title, findings in run_isolated(lambda opened: _try(file, asked, opened), label=str(file)):
        click.echo(title)
        for problem, alike in _by_problem(findings).items():
            for promise, _ in alike:
                click.echo(f"  {'BROKEN' if problem else 'kept  '}  {promise}")
            if problem:
                broken = True
                click.echo(f"          {problem}")
                click.echo(alike[0][1], err=True, nl=False)
    return AlgorithmError.exit_code if broken else 0


def _by_problem(findings: Sequence[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Return the promises by their problem, each with its traceback: one fault may break many."""
    found: dict[str, list[tuple[str, str]]] = {}
    for promise, problem, trace in findings:
        found.setdefault(problem, []).append((promise, trace))
    return found


def _try(file: Path, asked: Sequence[Override], opened: Opened) -> list[CheckReport]:
    """Test everything in the file."""
    if file.suffix == ".py":
        return [_try_algorithm(config, opened) for config in _of_file(file, asked)]
    return list(_try_scenario(file, asked, opened))


def _result(title: str, results: Iterator[CheckResult]) -> CheckReport:
    return title, [(one.promise, one.problem, one.trace) for one in results]


def _try_algorithm(config: AlgorithmConfig, opened: Opened) -> CheckReport:
    opened()
    return _result(f"{type(config).__name__} ({config})", examine(config))


def _try_scenario(file: Path, asked: Sequence[Override], opened: Opened) -> Iterator[CheckReport]:
    """Test all custom code of a scenario."""
    file = find_scenario(file)
    scenario = load(file, overrides=asked)
    algorithm = scenario.algorithm
    if not own_code(scenario):
        expected = "a custom algorithm, model, data set or metric, in a file"
        raise ScenarioError([Problem(str(file), 0, "algorithm", algorithm.name, expected)])
    if isinstance(algorithm, CustomAlgorithm):
        code = UserCode(file.parent / algorithm.file, algorithm.class_name, "algorithm")
        yield _try_algorithm(open_config(code, algorithm.options), opened)
    with tempfile.TemporaryDirectory() as folder:
        yield from _try_learning(scenario, file.parent, Path(folder), opened)
    for metric in scenario.evaluate.metrics:
        if isinstance(metric, CustomMetric):
            yield _try_metric(metric, file.parent, scenario, opened)


def _try_metric(
    metric: CustomMetric, beside: Path, scenario: Scenario, opened: Opened
) -> CheckReport:
    code = UserCode(beside / metric.file, metric.class_name, "evaluate.metrics")
    classes = scenario.dataset.images and scenario.dataset.images[1]

    def check(own: CustomMetric) -> None:
        """It is created with its options, and its value of random outputs is a finite number."""
        try_metric(own, code, classes)

    opened()
    return _result(f"{metric.class_name} in {metric.file}", run_checks((check,), metric))


def _try_learning(
    scenario: Scenario, beside: Path, folder: Path, opened: Opened
) -> Iterator[CheckReport]:
    """Test a custom data set, and a custom model on it, or else on noise."""
    data: list[Prepared] = []
    dataset = scenario.dataset
    if isinstance(dataset, CustomDataset):

        def check(own: CustomDataset) -> None:
            """It gives images and labels that fit, and its transform repeats."""
            prepared = load_data(own.prepare_own(folder, folder=beside, opened=opened))
            transform = None
            if own.transform is not None:
                code = UserCode(beside / own.file, own.class_name, "dataset")
                transform = OwnTransform.of(code, own.transform)
            data.append(replace(prepared, transform=transform))

        yield _result(f"{dataset.class_name} in {dataset.file}", run_checks((check,), dataset))
    yield from _try_model(scenario, beside, data, opened)


def _try_model(
    scenario: Scenario, beside: Path, data: Sequence[Prepared], opened: Opened
) -> Iterator[CheckReport]:
    import torch

    model = scenario.model
    shape = (data[0].image_shape, data[0].classes) if data else scenario.dataset.images
    if not isinstance(model, CustomModel) or shape is None:
        return
    opened()
    torch.set_num_threads(1)
    own, code = model, UserCode(beside / model.file, model.class_name, "model")
    tokens = shape[0][0] if scenario.dataset.targets == "tokens" else 0
    samples = data[0] if data else noisy(*shape, tokens=tokens)

    def build() -> Network:
        network = own.build_of(code, *shape)
        require_targets(scenario, network, samples.tokens)
        return network

    tried = ModelUnderTest(code.name, build, samples)
    yield _result(f"{model.class_name} in {model.file}", examine_model(tried))


def _of_file(file: Path, asked: Sequence[Override]) -> Iterator[AlgorithmConfig]:
    code = UserCode(file, "an algorithm", "")
    options = {".".join(one.keys): one.value for one in asked}
    module = code.execute()
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, AlgorithmConfig)
        and value.__module__ == module.__name__
    ]
    if not names:
        raise code.error(
            "no subclass of AlgorithmConfig",
            "a subclass of AlgorithmConfig, in addition to the worker and server sides; a model, "
            "data set or metric is checked by the scenario that names it: testbed check FILE.yaml",
        )
    for name in names:
        yield open_config(UserCode(file, name, ""), options)
