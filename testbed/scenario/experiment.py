"""A scenario made concrete: its data, its network, and server and workers built from its seed.

Roles and simulations share it: nothing here depends on the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from pathlib import Path

import numpy as np

from testbed import algorithms, datasets
from testbed.algorithms.base import AlgorithmConfig, Samples, Stream
from testbed.algorithms.frame.compute import OwnCompute
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.service_queue import ServiceQueue
from testbed.algorithms.frame.stop import Schedule, StopRule, Target
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.datasets import Prepared
from testbed.datasets.streams import Arrivals, RecordFormat
from testbed.errors import ScenarioError
from testbed.faults.timeline import Timeline, crashes
from testbed.models import Network
from testbed.models.clients import ClientSamples, FineTuning, HeldOut, draw_batches
from testbed.models.metrics import ACCURACY, higher_is_better
from testbed.models.metrics.clients import Clients
from testbed.models.metrics.suite import MetricSuite
from testbed.models.saved import LoadedModel, ModelWriter, SavedModel, Which
from testbed.payloads import Vector
from testbed.payloads.layout import Layout
from testbed.scenario.availability import availabilities
from testbed.scenario.checks import require_algorithm, require_batch, require_targets
from testbed.scenario.dealing import deal, split
from testbed.scenario.devices import Device, devices
from testbed.scenario.links import feeders, restarts_feeders
from testbed.scenario.load import load
from testbed.scenario.metrics import clients_by, fault_metrics
from testbed.scenario.own_code import own_files
from testbed.scenario.run_file import of_run
from testbed.scenario.schema import DeviceClass, Scenario
from testbed.scenario.streams import LARGEST_RECORD
from testbed.scenario.traces import arrivals, own_copy
from testbed.scenario.transfers import ping_seconds
from testbed.values.laws import Law
from testbed.values.seeds import seed_globals, stream


@dataclass(frozen=True, eq=False)
class Experiment:
    """A scenario with its data and its network."""

    scenario: Scenario
    algorithm: AlgorithmConfig  # creates both halves; built in, or from the user's own file
    data: Prepared  # the prepared data set, mapped into memory
    network: Network  # the model, without values
    folder: Path  # the run's folder

    @classmethod
    def open(cls, folder: Path, *, data: Path | Prepared | None = None) -> Experiment:
        """Read the files that the controller put into a run's folder. Sets torch to one thread.

        ``data`` is the prepared data set or its folder; by default ``data`` in the run's folder,
        as nodes see it.

        Raises:
            TestbedError: a file is missing or invalid.
        """
        import torch

        torch.set_num_threads(1)
        scenario = load(folder / "scenario.yaml", custom_files=folder / "custom")
        algorithm = algorithms.configured(scenario.algorithm, folder)
        require_algorithm(scenario, algorithm)
        prepared = data if isinstance(data, Prepared) else datasets.load(data or folder / "data")
        prepared = replace(prepared, transform=scenario.dataset.make_ready(folder))
        network = scenario.model.build(prepared.image_shape, prepared.classes, folder=folder)
        require_batch(scenario, network.least_samples)
        require_targets(scenario, network, prepared.tokens)
        return cls(scenario, algorithm, prepared, network, folder)

    def moved(self, folder: Path) -> Experiment:
        """Return the same experiment for a process that sees the run's folder at another path."""
        moved = copy(self)
        object.__setattr__(moved, "folder", folder)
        return moved

    @property
    def own_files(self) -> str:
        """The names of the user's own code files; empty if there are none."""
        return own_files(self.scenario)

    @property
    def evaluation_seed(self) -> int | None:
        """Seed of the global generators in every evaluation; None if nothing may draw from them."""
        draws = stream(self.scenario.seed, "evaluator", "globals")
        return _number(draws) if self.own_files else None

    @property
    def metrics(self) -> MetricSuite:
        """The metrics of an evaluation."""
        return MetricSuite(self.scenario.evaluate.metrics, self.folder)

    def model_writer(self, folder: Path) -> ModelWriter:
        """Return the writer of the best and final models, into ``model`` in a run's folder."""
        into, data = folder / "model", self.data
        into.mkdir(exist_ok=True)
        metrics = self.scenario.evaluate.metrics
        lower = any(not one.higher_is_better for one in metrics[:1])
        return ModelWriter(into, self.network.layout, data.image_shape, data.classes, lower=lower)

    def compute(self, parameters: Vector, *, device: str | None, at_once: int) -> OwnCompute:
        """Bind the network for the gradients of several workers; see ``OwnCompute.open``."""
        tried = np.arange(min(self.scenario.workers.batch_size, len(self.data.train_labels)))
        network, source = self.network, self.data
        return OwnCompute.open(
            network, source, parameters, device=device, at_once=at_once, tried=tried
        )

    def server(self) -> Server:
        """Build the parameter server's loop, with the initial model."""
        scenario = self.scenario
        if self.own_files:
            seed_globals(_number(stream(scenario.seed, "ps", "globals")))
        half = self.algorithm.server(
            self.network.layout,
            scenario.workers.count,
            parameters=self.network.initial(stream(scenario.seed, "model")),
            rng=stream(scenario.seed, "ps", "algorithm"),
        )
        timeline = self.timeline()
        return Server(
            half,
            stop_rule(scenario),
            crashes=crashes(timeline, seed=scenario.seed),
            dead_after=float(scenario.ps.dead_after or inf),
            to_come=timeline.to_come,
            returning=timeline.returning,
        )

    def timeline(self) -> Timeline:
        """Build the timeline of faults."""
        return timeline_of(self.scenario, self.folder)

    def schedule(self) -> Schedule:
        """Return the evaluation schedule during training."""
        every = self.scenario.evaluate.every
        assert every is not None, "the scenario has filled it in"
        return Schedule.of(every)

    def checkpoints(self) -> Schedule | None:
        """Return the checkpoint schedule, or None for no checkpoints."""
        checkpoint = self.scenario.checkpoint
        return None if checkpoint is None else Schedule.of(checkpoint.every)

    def service_queue(self) -> ServiceQueue:
        """Build the parameter server's queue, empty."""
        return ServiceQueue(float(self.scenario.ps.service or 0.0))

    def worker(self, index: int, *, process: int = 0, parameters: Vector | None = None) -> Worker:
        """Build the loop of a worker.

        Args:
            index: its number.
            process: number of its process; one after a restart draws other numbers.
            parameters: where it keeps its model if given: zeros.
        """
        scenario, draws = self.scenario, partial(self._draws, index, process=process)
        network, local = self.network, self._initial_local
        half = self.algorithm.worker(
            network.worker_layout,
            scenario.workers.count,
            rng=draws("algorithm"),
            index=index,
            shared_seed=_number(stream(scenario.seed, "workers", "shared seed")),
            parameters=parameters,
        )
        half.parameters[network.layout.size :] = local
        own, transforms = self.shards[index], self.own_files or self.data.transform
        return Worker(
            half,
            stream=Stream(scenario.workers.batch_size, own=len(own), least=network.least_samples),
            source=self.order(index, own, process=process),
            think=self.think(index, process=process),
            encoding=scenario.encoding,
            draws=draws("transform") if transforms else None,
            seeds=draws("globals") if self.own_files else None,
            local=local.size,
            evaluates=clients_by("workers", scenario) is not None,
        )

    @cached_property
    def _initial_local(self) -> Vector:
        """What every worker has of its own when it begins; no values unless the model has such."""
        return self.network.initial_local(stream(self.scenario.seed, "model"))

    def _draws(self, index: int, use: str, *, process: int = 0) -> np.random.Generator:
        """Return worker ``index``'s generator for a use; a restarted process has another."""
        again = (f"process {process}",) if process else ()
        return stream(self.scenario.seed, f"w{index}", use, *again)

    def order(self, index: int, own: Samples, *, process: int = 0) -> Shard:
        """Return worker ``index``'s own training samples, in the order of their use."""
        return Shard(own, self._draws(index, "order", process=process))

    def arrivals(self) -> Sequence[Arrivals] | None:
        """Return the arrivals of each worker's stream, by index; None without streams."""
        return arrivals(self.scenario, partial(own_copy, self.folder))

    @property
    def records(self) -> RecordFormat:
        """The record format of samples in streams."""
        return record_format(self.scenario, self.data)

    @property
    def sample_bytes(self) -> int:
        """Bytes of a training sample without its label."""
        return self.data.train_images[:1].nbytes

    def think(self, index: int, *, process: int = 0) -> Callable[[], float]:
        """Return a sampler of worker ``index``'s emulated waits between computing and pushing."""
        think = self.scenario.workers.think_of(self.devices[index].device_class)
        if think is None:
            return Constant(0.0)
        return Durations(think.law, think.mean, self._draws(index, "think", process=process))

    def step(self, index: int, *, process: int = 0) -> Callable[[], float] | None:
        """Return a sampler of worker ``index``'s emulated step times; None for full speed.

        The time per sample of the batch is not included.
        """
        pace = self.devices[index].pace
        if pace is None:
            return None
        if pace.law.family == "constant":
            return Constant(pace.base_seconds)
        draws = self._draws(index, "speed", process=process)
        return Durations(pace.law, pace.base_seconds, draws)

    def each_sample(self, index: int) -> float:
        """Return worker ``index``'s emulated seconds of a training step per sample."""
        pace = self.devices[index].pace
        return 0.0 if pace is None else pace.sample_seconds

    @cached_property
    def devices(self) -> Sequence[Device]:
        """The device of each worker, by index."""
        return devices(self.scenario)

    def device_class(self, index: int) -> DeviceClass:
        """Return the class of worker ``index``."""
        return self.scenario.workers.classes[self.devices[index].device_class]

    @cached_property
    def ping_seconds(self) -> float:
        """The emulated seconds that a ping to or from the parameter server may have to wait."""
        return ping_seconds(self.scenario, self.network.layout.size)

    @cached_property
    def shards(self) -> Sequence[Samples]:
        """The training samples of each worker, by index, without those held out."""
        return [training for training, _ in self._split]

    @cached_property
    def _split(self) -> Sequence[tuple[Samples, Samples]]:
        return split(self.scenario, deal(self.scenario, self.data, self.folder))

    @cached_property
    def held_out(self) -> HeldOut | None:
        """The samples for an evaluation per client; None if the scenario asks for none."""
        metric = clients_by("evaluator", self.scenario)
        if metric is None:
            return None
        count, layout = self.scenario.workers.count, self.network.layout
        most = max(1, self.scenario.evaluate.images // count)
        return HeldOut([self._client(index, metric, layout) for index in range(count)], most)

    def client(self, index: int) -> ClientSamples | None:
        """Return the samples on which worker ``index`` evaluates models; None if it does not."""
        metric = clients_by("workers", self.scenario)
        if metric is None:
            return None
        client = self._client(index, metric, self.network.worker_layout)
        batch, pace = self.scenario.workers.batch_size, self.devices[index].pace
        if pace is None:
            return client
        seconds = metric.cost * pace.mean(batch) * len(client.held) / batch
        if client.fine_tuning is not None:
            seconds += sum(pace.mean(len(one)) for one in client.fine_tuning.batches)
        return replace(client, seconds=seconds)

    def _client(self, index: int, metric: Clients, layout: Layout) -> ClientSamples:
        (training, held), data, tuning = self._split[index], self.data, None
        if metric.fine_tune is not None:
            draws = stream(self.scenario.seed, f"w{index}", "fine_tune")
            batch = self.scenario.workers.batch_size
            batches = draw_batches(training, batch, metric.fine_tune.epochs, rng=draws)
            rate = metric.fine_tune.learning_rate
            tuning = FineTuning(batches, rate, layout.untrained_slices)
        images, labels = data.train_images, data.train_labels
        return ClientSamples(images, labels, held, data.transform, fine_tuning=tuning)

    def test_samples(self) -> Samples:
        """Draw the indices of the test images used during training; the same for the same seed."""
        images = len(self.data.test_labels)
        count = min(images, self.scenario.evaluate.images)
        draws = stream(self.scenario.seed, "evaluator", "images")
        return np.sort(draws.choice(images, count, replace=False))


def stop_rule(scenario: Scenario) -> StopRule:
    """Return when training ends."""
    stop = scenario.stop
    targets = []
    if stop.accuracy is not None:
        targets.append(Target(ACCURACY, stop.accuracy, shown="accuracy"))
    for name, value in stop.metrics.items():
        higher = higher_is_better(name, scenario.evaluate.metrics)
        targets.append(Target(name, value, higher_is_better=higher))
    return StopRule(stop.updates, stop.steps, stop.time, stop.loss, targets=tuple(targets))


def timeline_of(scenario: Scenario, folder: Path) -> Timeline:
    """Build the fault timeline of a run; ``folder`` holds its recordings."""
    metrics = scenario.evaluate.metrics
    return Timeline.of(
        scenario.faults,
        scenario.workers.worker_classes(),
        seed=scenario.seed,
        availabilities=availabilities(scenario, partial(own_copy, folder)),
        others=feeders(scenario),
        restarted=restarts_feeders(scenario),
        lower=[name for name in fault_metrics(scenario) if not higher_is_better(name, metrics)],
    )


def _number(draws: np.random.Generator) -> int:
    """Draw a seed for other generators."""
    return int(draws.integers(2**63))


@dataclass(frozen=True)
class Constant:
    """A constant duration in emulated seconds; a class, as checkpoints cannot hold a lambda."""

    seconds: float

    def __call__(self) -> float:
        return self.seconds


@dataclass(frozen=True)
class Durations:
    """Draws durations in emulated seconds from a law with a mean."""

    law: Law
    mean: float
    rng: np.random.Generator

    def __call__(self) -> float:
        return self.law.draw(self.rng) * self.mean


def record_format(scenario: Scenario, data: Prepared) -> RecordFormat:
    """Return the record format of streamed samples.

    Raises:
        ScenarioError: a broker would refuse the records.
    """
    streams = scenario.streams
    samples = 1 if streams is None else streams.samples_per_record
    found = RecordFormat(data.image_shape, data.train_images.dtype.char, samples)
    if streams is not None and streams.has_broker and found.record_bytes > LARGEST_RECORD:
        most = LARGEST_RECORD * samples // found.record_bytes
        expected = f"at most {most:,}: a broker accepts records up to {LARGEST_RECORD}"
        raise ScenarioError.at("streams.samples_per_record", f"{samples:,}", expected)
    return found


def load_model(folder: Path, which: Which = "best") -> LoadedModel:
    """Load a run's trained model into its network; needs no data set.

    Args:
        folder: the run's folder.
        which: ``best`` of all evaluations during training, or ``final``.

    Raises:
        TestbedError: the model does not exist.
        DataError: it is damaged, or the scenario in the run's folder.
        ScenarioError: the user's own model file in the run's folder is invalid.
    """
    saved = SavedModel.open(folder / "model", which)
    with of_run(folder / "scenario.yaml"):
        scenario = load(folder / "scenario.yaml", custom_files=folder / "custom")
    network = scenario.model.build(saved.image_shape, saved.classes, folder=folder)
    return saved.load(network)
