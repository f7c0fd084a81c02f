"""A run's data set and the size of its model, before the run has a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from testbed import datasets
from testbed.datasets import CustomDataset, DatasetConfig, Prepared, Text, user_cache
from testbed.datasets.partitions.custom import CustomPartition
from testbed.errors import UNKNOWN_FILE, Problem, ScenarioError
from testbed.host.isolation import Opened, run_isolated
from testbed.models import CustomModel, ImageShape
from testbed.models.cost import count_flops
from testbed.run.prepare import RunRequest
from testbed.scenario.checks import (
    check_model_targets,
    model_too_large,
    require_batch,
    require_targets,
)
from testbed.scenario.costs import uses_profiles, with_cost
from testbed.scenario.dealing import deal, split
from testbed.scenario.durations import ModelCost
from testbed.scenario.experiment import record_format
from testbed.scenario.scalars import dotted
from testbed.scenario.schema import Scenario
from testbed.telemetry.folder import RunFolder
from testbed.values.user_code import UserCode


def prepare_data(request: RunRequest, prepared: Path | None = None) -> Path:
    """Return the folder of the prepared data set, after checking it against the scenario.

    Unless it is ``prepared`` already, it is created on first use.

    Raises:
        DataError: the data set is missing or damaged.
        ScenarioError: it has too few samples for the workers or for a batch, or targets that the
            model does not predict, or its samples make records that no broker accepts.
        UserFileError, UserCodeError: the user's own code failed.
    """
    scenario, environment = request.scenario, request.environment
    folder = prepared or prepare_dataset(scenario.dataset, environment, request.beside)
    data = datasets.load(folder)
    if unfit := list(
        check_model_targets(
            request.scenario, inputs=data.inputs, targets=data.targets, classes=data.classes
        )
    ):
        raise ScenarioError(
            [Problem(UNKNOWN_FILE, 0, dotted(path), *told) for path, *told in unfit]
        )
    _check_shares(request.scenario, data, request.beside)
    record_format(request.scenario, data)
    return folder


def _check_shares(scenario: Scenario, data: Prepared, folder: Path) -> None:
    """Check that every worker has samples; the user's own partition runs in a separate process."""
    partition = scenario.dataset.partition

    def share(_: Opened) -> str:
        split(scenario, deal(scenario, data, folder))
        return ""

    if isinstance(partition, CustomPartition):
        run_isolated(share, label=partition.file)
    else:
        split(scenario, deal(scenario, data, folder))


def known_size(scenario: Scenario, data: Path) -> int | None:
    """Return the number of parameters of the model; None where only user code knows it."""
    prepared = datasets.load(data)
    return scenario.model.parameters(prepared.image_shape, prepared.classes)


def model_size(request: RunRequest, data: Path) -> int | None:
    """Return the number of parameters; a custom model is built once, in a separate process.

    Raises:
        ScenarioError: the user's own file is wrong, or its model too large to be sent, or a batch
            too small for it.
        UserFileError, UserCodeError: the user's own code failed.
    """
    scenario, model = request.scenario, request.scenario.model
    if not isinstance(model, CustomModel):
        return known_size(scenario, data)
    prepared = datasets.load(data)
    shape = prepared.image_shape, prepared.classes
    size = try_model(scenario, model, request.beside, shape, tokens=prepared.tokens)
    if not scenario.simulated and (unfit := model_too_large(size)):
        raise ScenarioError.at("model", *unfit)
    return size


def with_model_cost(request: RunRequest, data: Path) -> RunRequest:
    """Return the request with the cost of its model, if step times follow from it.

    The model is built and run once, in a separate process.

    Raises:
        ScenarioError: the model cannot be counted, or the user's own file is wrong.
        UserFileError, UserCodeError: the user's own code failed.
    """
    scenario, model = request.scenario, request.scenario.model
    if not uses_profiles(scenario):
        return request
    prepared = datasets.load(data)
    shape = prepared.image_shape, prepared.classes

    def count(_: Opened) -> str:
        import torch

        torch.set_num_threads(1)  # the threads of this process do not survive the fork
        network = (
            model.build_of(UserCode(request.beside / model.file, model.class_name, "model"), *shape)
            if isinstance(model, CustomModel)
            else model.build(*shape, folder=request.beside)
        )
        flops = count_flops(network, *shape)
        return ModelCost(flops=flops, parameters=network.layout.size).model_dump_json()

    label = model.file if isinstance(model, CustomModel) else model.name
    cost = ModelCost.model_validate_json(run_isolated(count, label=label))
    return replace(request, scenario=with_cost(scenario, cost))


def try_model(
    scenario: Scenario,
    model: CustomModel,
    beside: Path,
    shape: tuple[ImageShape, int],
    *,
    tokens: int,
) -> int:
    """Build a custom model in a separate process; return its number of parameters.

    Args:
        scenario: the scenario that uses the model.
        model: the model.
        beside: folder of the scenario file.
        shape: of images, and the number of classes.
        tokens: number of tokens of a target; 0 for labels and numbers.

    Raises:
        ScenarioError: the user's own file is wrong, or a batch too small for the model, or its
            outputs are not those of the targets.
        UserFileError, UserCodeError: the user's own code failed.
    """
    code = UserCode(beside / model.file, model.class_name, "model")

    def build(_: Opened) -> tuple[int, int]:
        import torch

        torch.set_num_threads(1)
        network = model.build_of(code, *shape)
        require_targets(scenario, network, tokens)
        return network.layout.size, network.least_samples

    size, least_samples = run_isolated(build, label=model.file)
    require_batch(scenario, int(least_samples))
    return int(size)


def prepare_own_data(scenario: Scenario, folder: RunFolder, environment: Mapping[str, str]) -> Path:
    """Return the prepared data set of a run that has its folder, which contains the user's files.

    Raises:
        DataError: the data set is missing or damaged.
        UserFileError, UserCodeError: the user's own code failed.
    """
    dataset = scenario.dataset
    if isinstance(dataset, CustomDataset | Text):
        dataset = dataset.model_copy(update={"file": Path(dataset.file).name})
    return prepare_dataset(dataset, environment, folder.custom)


def prepare_dataset(dataset: DatasetConfig, environment: Mapping[str, str], folder: Path) -> Path:
    """Return the folder of the prepared data set; create it on first use.

    The user's own code creates it in a separate process.

    Args:
        dataset: its options.
        environment: of this process.
        folder: base folder of relative names of the user's own files.

    Raises:
        DataError: the data set is missing or damaged.
        UserFileError, UserCodeError: the user's own code failed.
    """
    cache = user_cache(environment)
    if not isinstance(dataset, CustomDataset):
        return dataset.prepare(cache, environment=environment, folder=folder)
    own = dataset

    def make(opened: Opened) -> str:
        return str(own.prepare_own(cache, folder=folder, opened=opened))

    return Path(run_isolated(make, label=own.file))
