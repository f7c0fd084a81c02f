"""Checks of a scenario across its fields, against the host, and with its code and data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import floor, inf
from typing import Any

from testbed.algorithms import Adsp, ScaDles
from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.parts.federated import FederatedRounds
from testbed.datasets import CustomDataset
from testbed.datasets.streams import Each, Steady, Traced
from testbed.errors import ScenarioError
from testbed.faults.base import TimedFault
from testbed.models import Network
from testbed.models.base import AT_WORKERS
from testbed.rpc.limits import LARGEST_MODEL
from testbed.runtimes import Docker, RayPool, Runtime, Simulated, names
from testbed.scenario.compute import refusals
from testbed.scenario.document import Finding, Keys
from testbed.scenario.durations import LEAST_INTERVAL
from testbed.scenario.fault_checks import check_deal, check_faults, check_links
from testbed.scenario.host_checks import check_hosts
from testbed.scenario.links import addressed, linked_nodes
from testbed.scenario.metrics import check_metrics, check_targets, clients_by
from testbed.scenario.schema import Scenario
from testbed.scenario.settings import Shared
from testbed.scenario.streams import StreamSettings
from testbed.values.samples import Inputs, Targets
from testbed.values.units import Duration
from testbed.values.user_code import OwnCode

MOST_WORKERS = 1022
"""A Linux bridge has 1,023 ports, one of which is for the parameter server."""


SIMULATED_HAVE_MORE = "For more, use `runtime: simulated`: a simulation needs no switch"


PARAMETER_BYTES = 4


TAKEN = re.compile(r"ps|evaluator|compute|agent|controller|broker|w\d+|probe\d*|producer\d*")
"""Names that are reserved for nodes, and for other processes with a log."""


def check_device(scenario: Scenario, has_cuda: Callable[[], bool]) -> Iterator[Finding]:
    """Check that a GPU is available for a simulation that is configured to use one."""
    runtime = scenario.runtime
    if not isinstance(runtime, Simulated) or isinstance(runtime.pool, RayPool):
        return
    if runtime.device == "cuda" and not has_cuda():
        expected = "a GPU that the installed PyTorch can use, or cpu: PyTorch finds no GPU here"
        yield ("runtime", "device"), "cuda", expected


def on_one_switch(scenario: Scenario) -> bool:
    """Return whether one switch has the links of all nodes; each host of a Swarm has its own."""
    runtime = scenario.runtime
    return not (scenario.simulated or (isinstance(runtime, Docker) and runtime.swarm is not None))


def check_whole(scenario: Scenario) -> Iterator[Finding]:
    """Check a valid scenario as a whole, for requests that cannot be met."""
    if scenario.simulated:
        yield from _check_simulation(scenario)
    elif on_one_switch(scenario) and (
        scenario.workers.count + len(scenario.programs) > MOST_WORKERS
    ):
        programs = f" and {len(scenario.programs):,} programs" if scenario.programs else ""
        yield (
            ("workers", "count"),
            f"{scenario.workers.count:,}{programs}",
            f"at most {MOST_WORKERS:,} workers and programs: a switch has {MOST_WORKERS + 1:,} "
            "ports, one of which is for the parameter server",
            SIMULATED_HAVE_MORE,
        )
    if scenario.codec is not None and not scenario.simulated:
        expected = "runtime: simulated; in a live run, encoding and decoding take real time"
        yield ("codec",), f"`codec` with runtime {scenario.runtime.name}", expected
    yield from _check_programs(scenario)
    yield from check_faults(scenario)
    yield from _check_algorithm(scenario)
    yield from check_rounds(scenario)
    yield from check_streams(scenario)
    yield from check_compute(scenario)
    yield from _check_intervals(scenario)
    yield from check_metrics(scenario)
    images = scenario.dataset.images
    yield from check_model_targets(
        scenario,
        inputs=scenario.dataset.input_type,
        targets=scenario.dataset.targets,
        classes=None if images is None else images[1],
    )
    parameters = None if images is None else scenario.model.parameters(*images)
    if parameters is not None and not scenario.simulated and (unfit := model_too_large(parameters)):
        yield ("model",), unfit[0], unfit[1]
    gpus = {("evaluate", "gpus"): scenario.evaluate.gpus, **of_classes(scenario, "gpus")}
    yield from check_gpus(scenario.runtime, gpus)
    yield from check_hosts(scenario)
    yield from check_deal(scenario)
    yield from check_links(scenario)


def of_classes(scenario: Scenario, field: str) -> dict[Keys, Any]:
    """Return the values of a field of all device classes, by their paths."""
    classes = scenario.workers.classes.items()
    return {("workers", "classes", name, field): getattr(one, field) for name, one in classes}


def model_too_large(parameters: int) -> tuple[str, str] | None:
    """Return what was found and expected for a model too large to be sent; None if it fits."""
    most = int(LARGEST_MODEL) // PARAMETER_BYTES
    if parameters <= most:
        return None
    size = parameters * PARAMETER_BYTES / 2**20
    found = f"a model with {parameters:,} parameters, {size:,.1f} MiB"
    return found, f"at most {most:,} parameters, {LARGEST_MODEL}"


def _check_intervals(scenario: Scenario) -> Iterator[Finding]:
    """Check that periodic work leaves time for the training."""
    saved = None if scenario.checkpoint is None else scenario.checkpoint.every
    for part, every, what in (
        ("evaluate", scenario.evaluate.every, "evaluations"),
        ("checkpoint", saved, "checkpoints"),
    ):
        if isinstance(every, Duration) and every < LEAST_INTERVAL:
            expected = f"{LEAST_INTERVAL} or more between two {what}"
            yield (part, "every"), str(every), expected


def _check_algorithm(scenario: Scenario) -> Iterator[Finding]:
    """Check that the algorithm uses all options that are set, and gets the evaluations it needs."""
    algorithm, every = scenario.algorithm, scenario.evaluate.every
    waits = {("workers", "think"): scenario.workers.think, **of_classes(scenario, "think")}
    for path in [path for path, think in waits.items() if think and not algorithm.THINKS]:
        expected = f"none: {algorithm.name} has no think time; set `speed` instead"
        yield path, "a think time", expected
    if not algorithm.PACKS and scenario.encoding != "raw":
        expected = f"raw: {algorithm.name} encodes its pushes itself"
        yield ("encoding",), scenario.encoding, expected
    buffers = getattr(scenario.model, "buffers", "dropped")
    if not algorithm.AVERAGES_BUFFERS and buffers != "dropped":
        expected = "dropped, or an algorithm that averages models, such as fedavg or fedprox"
        yield ("model", "buffers"), f"{buffers}, with {algorithm.name}", expected
    elif buffers in AT_WORKERS and clients_by("workers", scenario) is None:
        expected = "`{clients: {by: workers}}` too in evaluate.metrics: only workers have this part"
        yield ("model", "buffers"), f"{buffers}, with evaluations by the evaluator only", expected
    if not isinstance(algorithm, Adsp) or algorithm.commit_rate is not None:
        return
    if isinstance(every, Duration) and not _divides(every, algorithm.check_period):
        found = f"an evaluation every {every}"
        expected = f"an interval that divides algorithm.check_period, {algorithm.check_period}"
        hint = "ADSP judges every check period by evaluations at equal intervals within it"
        yield ("evaluate", "every"), found, expected, hint


def _divides(part: float, whole: float) -> bool:
    """Whether a duration is a multiple of another, up to rounding."""
    count = round(whole / part)
    return count >= 1 and abs(whole / part - count) < 1e-6


def _check_simulation(scenario: Scenario) -> Iterator[Finding]:
    """Check that a simulation, which has no containers, sets nothing that needs one."""
    for path, speed in of_classes(scenario, "speed").items():
        if speed is None:
            expected = "the emulated time of a step, such as 50ms: a simulation measures no time"
            yield path, "nothing", expected
    for field in ("cpu", "cpuset", "memory", "scratch"):
        limits = {**of_classes(scenario, field), ("ps", field): getattr(scenario.ps, field)}
        for path, limit in limits.items():
            if limit is not None:
                expected = f"no {field} limit: in a simulation, only `speed` determines computing"
                yield path, str(limit), f"{expected} time"
    if scenario.programs:
        able = " or ".join(names())
        expected = f"none: a simulation runs no commands; runtime {able} does"
        found = ", ".join(scenario.programs)
        yield ("programs",), found, expected
    if scenario.launch != "warm":
        expected = "warm, the default: a simulation starts no processes of workers"
        yield ("launch",), scenario.launch, expected


def _check_programs(scenario: Scenario) -> Iterator[Finding]:
    """Check that programs have unused names, and that the nodes they refer to exist."""
    nodes = linked_nodes(scenario)
    for name, program in scenario.programs.items():
        path: Keys = ("programs", name)
        if TAKEN.fullmatch(name):
            expected = "another name: this name is reserved for another node or a log file"
            yield path, name, expected
        yield from check_image(scenario.runtime, program.image, path)
        for word in program.command:
            for unknown in [one for one in addressed(word) if one not in nodes]:
                expected = (
                    "a node with a link: ps, a worker or a program; for braces, write {{...}}"
                )
                yield (*path, "command"), f"{{{unknown}}}", expected


def check_image(runtime: Runtime, image: str | None, program: Keys) -> Iterator[Finding]:
    """Check that the runtime can make a program's containers from an image of the user."""
    if image is not None and not (runtime.capabilities.images or isinstance(runtime, Simulated)):
        expected = "`runtime: docker`: other nodes have the programs of this host"
        yield (*program, "image"), f"{image}, with runtime {runtime.name}", expected


def check_gpus(runtime: Runtime, numbers: Mapping[Keys, float | None]) -> Iterator[Finding]:
    """Check that the runtime can give GPUs to nodes; ``numbers`` are those wanted, by path."""
    for path, gpus in numbers.items():
        if gpus and not runtime.capabilities.gpus:
            able = " or ".join(names(gpus=True))
            expected = f"0: runtime {runtime.name} does not support GPUs, {able} does"
            yield path, f"{gpus:g}", expected


def substitutes(scenario: Scenario) -> tuple[str, ...]:
    """Describe what the scenario substitutes for something that is not available."""
    return tuple(one.substitute for one in (scenario.model, scenario.dataset) if one.substitute)


def check_model_targets(
    scenario: Scenario, *, inputs: Inputs | None, targets: Targets | None, classes: int | None
) -> Iterator[tuple[Keys, str, str]]:
    """Yield settings that do not fit the samples of the data set, as path, found and expected.

    Args:
        scenario: the scenario, which is valid apart from this.
        inputs: what a model gets; None if not yet known.
        targets: what it predicts; likewise.
        classes: number of classes of the data set, 0 for numbers as targets; likewise.
    """
    model, dataset = scenario.model, scenario.dataset.name
    name, predicts = model.name, model.predicts
    targets = targets or predicts
    if predicts is not None and targets != predicts:
        found = f"{name}, which predicts {predicts}"
        expected = f"a model that predicts {targets}"
        if isinstance(own := scenario.dataset, CustomDataset) and targets == "numbers":
            found = f"labels of {own.class_name} that are floats, which are numbers to predict"
            expected = (
                f"integers such as y.astype(int), as {name} predicts {predicts}; or {expected}"
            )
            yield ("dataset",), found, expected
        else:
            yield ("model",), found, f"{expected}, the targets of {dataset}"
    elif None not in (inputs, model.reads) and inputs != model.reads:
        found = f"{name}, which reads {model.reads}"
        yield ("model",), found, f"a model that reads {inputs}, the samples of {dataset}"
    if inputs == "tokens" and scenario.streams is not None:
        expected = "none: a record of a stream has an image and one label or number"
        yield ("streams",), f"streams of {dataset}, which has tokens", expected
    if targets is not None:
        yield from check_targets(scenario, targets, classes)
    if targets != "numbers":
        return
    expected = f"another criterion, such as `loss`: {name} predicts numbers, which have no accuracy"
    if scenario.stop.accuracy is not None:
        yield ("stop", "accuracy"), f"{scenario.stop.accuracy:g}", expected
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, TimedFault) and fault.at.accuracy is not None:
            expected = f"a time or a version: {name} predicts numbers, which have no accuracy"
            yield ("faults", place), f"an accuracy of {fault.at.accuracy:g}", expected


def check_rounds(scenario: Scenario) -> Iterator[Finding]:
    """Check that rounds can begin, and that over-selection has workers to choose from."""
    algorithm, count = scenario.algorithm, scenario.workers.count
    if not isinstance(algorithm, FederatedRounds):
        return
    rules = algorithm.rounds
    if rules.min_available > count:
        found, expected = f"{rules.min_available:,}", f"at most {count:,}: the number of workers"
        yield ("algorithm", "rounds", "min_available"), found, expected
    needed = max(1, round(algorithm.fraction * count))
    if rules.over_selection > 1 and needed == count:
        found = f"{rules.over_selection:g} with rounds of all {count:,} workers"
        expected = "1, or an algorithm.fraction that leaves some out"
        yield ("algorithm", "rounds", "over_selection"), found, expected


def check_compute(scenario: Scenario) -> Iterator[Finding]:
    """Check that shared processes can compute what the scenario trains."""
    if not isinstance(scenario.compute, Shared):
        return
    for path, (found, expected) in refusals(scenario).items():
        if path == ("runtime",):
            yield ("compute",), f"shared, with runtime {found}", f"own: {expected}"
        else:
            yield path, found, expected, "Or set `compute: own`"


def check_streams(scenario: Scenario) -> Iterator[Finding]:
    """Check that the algorithm accepts streams, and that every device can be fed."""
    streams, algorithm, count = scenario.streams, scenario.algorithm, scenario.workers.count
    if streams is None:
        return
    if not algorithm.TAKES_STREAMS:
        expected = "no streams, or an algorithm that supports streams, such as ddl or scadles"
        yield ("streams",), f"streams with {algorithm.name}", expected
    least = algorithm.min_batch if isinstance(algorithm, ScaDles) else scenario.workers.batch_size
    if streams.samples_per_record > least:
        expected = f"at most {least:,}, the smallest batch: a step waits only for samples it uses"
        found = f"{streams.samples_per_record:,}"
        yield ("streams", "samples_per_record"), found, expected
    if isinstance(streams.rates, Each) and len(streams.rates.given) != count:
        found, expected = f"{len(streams.rates.given):,} rates", f"{count:,}, one for each worker"
        yield ("streams", "rates", "per_second"), found, expected
        return
    lowest, largest = streams.range or (0.0, inf)
    for rate in [rate for rate in streams.rates.given if not lowest <= rate <= largest][:1]:
        expected = f"a rate from {lowest:g} to {largest:g} samples per second, or `clip: off`"
        yield ("streams", "rates", "per_second"), f"{rate:g}", expected
    change = streams.over_time
    yield from _records_in_time(scenario, streams)
    stops = not isinstance(change, Traced) and change.falls_silent  # recordings: see elsewhere
    if (stops or 0.0 in streams.per_second(count, seed=scenario.seed)) and streams.patience == inf:
        expected = "a duration: some streams stop, and training would wait for them forever"
        yield ("streams", "stream_timeout"), "off", expected


def _records_in_time(scenario: Scenario, streams: StreamSettings) -> Iterator[Finding]:
    """Check that records are complete within the timeout; otherwise a device misses all rounds."""
    rates = streams.per_second(scenario.workers.count, seed=scenario.seed)
    slowest = min((rate for rate in rates if rate), default=inf)
    seconds = streams.samples_per_record / slowest
    steady = isinstance(streams.over_time, Steady)  # otherwise rates may rise later
    if steady and streams.samples_per_record > 1 and seconds > streams.patience:
        found = (
            f"{streams.samples_per_record:,}, which take {seconds:g} s at {slowest:g} per second"
        )
        most = max(1, floor(streams.patience * slowest))
        expected = f"at most {most:,}, which take no longer than stream_timeout"
        yield ("streams", "samples_per_record"), found, expected


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
