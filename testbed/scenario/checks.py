"""Checks of a scenario across its fields, and against the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from testbed.algorithms import Adsp
from testbed.algorithms.base import AlgorithmConfig
from testbed.faults import ChangedLink, Kill
from testbed.faults.base import TimedFault
from testbed.faults.check import contradictions, rejoining
from testbed.models.base import AT_WORKERS
from testbed.network.offloads import needs_packets
from testbed.rpc.limits import LARGEST_MODEL
from testbed.runtimes import Simulated, names
from testbed.scenario.compute_checks import check_compute
from testbed.scenario.device_checks import check_deal, check_device_links
from testbed.scenario.direction import Link
from testbed.scenario.document import Finding, Keys
from testbed.scenario.durations import LEAST_INTERVAL
from testbed.scenario.links import (
    addressed,
    feeders,
    link_spec,
    linked_nodes,
    links_after,
    restarts_feeders,
    unshapable,
)
from testbed.scenario.metrics import check_metrics, check_targets, clients_by_workers
from testbed.scenario.rounds import check_rounds
from testbed.scenario.scalars import display
from testbed.scenario.schema import DeviceClass, PsSettings, Scenario
from testbed.scenario.stream_checks import check_streams
from testbed.scenario.traces import recorded_fields
from testbed.values.samples import Inputs, Targets
from testbed.values.topology import LinkSpec
from testbed.values.units import Duration

MOST_WORKERS = 1022
"""A Linux bridge has 1,023 ports, one of which is for the parameter server."""
SIMULATED_HAVE_MORE = "For more, use `runtime: simulated`: a simulation needs no switch"

PARAMETER_BYTES = 4

TAKEN = re.compile(r"ps|evaluator|compute|agent|controller|broker|w\d+|probe\d*|producer\d*")
"""Names that are reserved for nodes, and for other processes with a log."""


def check_device(scenario: Scenario, has_cuda: Callable[[], bool]) -> Iterator[Finding]:
    """Check that a GPU is available for a simulation that is configured to use one."""
    wants = isinstance(scenario.runtime, Simulated) and scenario.runtime.device == "cuda"
    if wants and not has_cuda():
        expected = "a GPU that the installed PyTorch can use, or cpu: PyTorch finds no GPU here"
        yield ("runtime", "device"), "cuda", expected


def check_whole(scenario: Scenario) -> Iterator[Finding]:
    """Check a valid scenario as a whole, for requests that cannot be met."""
    if scenario.simulated:
        yield from _check_simulation(scenario)
    elif scenario.workers.count + len(scenario.programs) > MOST_WORKERS:
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
    if not scenario.runtime.capabilities.gpus:
        yield from _check_no_gpus(scenario)
    yield from check_deal(scenario)
    yield from _check_links(scenario)


def _check_links(scenario: Scenario) -> Iterator[Finding]:
    """Check that the kernel can create the links."""
    links: dict[Keys, Link] = {("ps", "link"): scenario.ps.link}
    for name, member in scenario.workers.classes.items():
        links[("workers", "classes", name, "link")] = member.link
    for name, program in scenario.programs.items():
        links[("programs", name, "link")] = program.link
    for path, link in links.items():
        spec = link_spec(link, address="", mac="", time_scale=scenario.time_scale)
        for direction, reason in unshapable(spec):
            yield (*path, direction), "", "", reason
    yield from check_device_links(scenario)


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
    thinks = not isinstance(algorithm, AlgorithmConfig) or algorithm.THINKS
    waits: dict[Keys, object] = {("workers", "think"): scenario.workers.think}
    for name, member in scenario.workers.classes.items():
        waits[("workers", "classes", name, "think")] = member.think
    for path in [path for path, think in waits.items() if think is not None and not thinks]:
        expected = f"none: {algorithm.name} has no think time; set `speed` instead"
        yield path, "a think time", expected
    packs = not isinstance(algorithm, AlgorithmConfig) or algorithm.PACKS
    if not packs and scenario.encoding != "raw":
        expected = f"raw: {algorithm.name} encodes its pushes itself"
        yield ("encoding",), scenario.encoding, expected
    averages = not isinstance(algorithm, AlgorithmConfig) or algorithm.AVERAGES_BUFFERS
    buffers = getattr(scenario.model, "buffers", "dropped")
    if not averages and buffers != "dropped":
        expected = "dropped, or an algorithm that averages models, such as fedavg or fedprox"
        yield ("model", "buffers"), f"{buffers}, with {algorithm.name}", expected
    elif buffers in AT_WORKERS and clients_by_workers(scenario) is None:
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
    for name, member in scenario.workers.classes.items():
        path: Keys = ("workers", "classes", name)
        if member.speed is None:
            expected = "the emulated time of a step, such as 50ms: a simulation measures no time"
            yield (*path, "speed"), "nothing", expected
        yield from _check_unlimited(member, path)
    yield from _check_unlimited(scenario.ps, ("ps",))
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
        for word in program.command:
            for unknown in [one for one in addressed(word) if one not in nodes]:
                expected = (
                    "a node with a link: ps, a worker or a program; for braces, write {{...}}"
                )
                yield (*path, "command"), f"{{{unknown}}}", expected


def _check_no_gpus(scenario: Scenario) -> Iterator[Finding]:
    fields: dict[Keys, float] = {("evaluate", "gpus"): scenario.evaluate.gpus}
    for name, member in scenario.workers.classes.items():
        fields[("workers", "classes", name, "gpus")] = member.gpus
    for path in [path for path, gpus in fields.items() if gpus]:
        able = " or ".join(names(gpus=True))
        expected = f"0: runtime {scenario.runtime.name} does not support GPUs, {able} does"
        yield path, f"{fields[path]:g}", expected


def _check_unlimited(limited: DeviceClass | PsSettings, path: Keys) -> Iterator[Finding]:
    for field in ("cpu", "cpuset", "memory", "scratch"):
        value = getattr(limited, field)
        if value is not None:
            expected = f"no {field} limit: in a simulation, only `speed` determines computing time"
            yield (*path, field), str(value), expected


def check_faults(scenario: Scenario) -> Iterator[Finding]:
    """Check that faults target existing nodes, and do not contradict one another."""
    classes, others = scenario.workers.worker_classes(), feeders(scenario)
    missing = list(_check_targets(scenario))
    if missing:
        yield from missing
        return
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, TimedFault) and fault.at.log is not None:
            expected = "a time, a version or an accuracy: only nodes of a workload print lines"
            yield ("faults", place, "at"), str(fault.at), expected
    if scenario.runtime.capabilities.engine:
        yield from _check_engine(scenario)
    restarted = restarts_feeders(scenario)
    for place, found in contradictions(
        scenario.faults, classes, seed=scenario.seed, others=others, restarted=restarted
    ):
        expected = "faults that do not contradict one another"
        yield ("faults", place), found, expected

    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, ChangedLink):
            path = ("faults", place)
            numbers = fault.pick_targets(classes, seed=scenario.seed, place=place)
            traced = {one.device_class for one in recorded_fields(scenario)}
            for name in sorted(traced.intersection(classes[one] for one in numbers)):
                found = f"a change to links of class {name}, which follow a recording"
                expected = "links without a recording: a recording determines all their changes"
                yield (*path, fault.name), found, expected
            links = {whose: link for _, whose, link in links_after(scenario, fault, place)}
            for whose, link in links.items():
                yield from _check_link(scenario, path, link, whose)
            if scenario.network.offload == "on" and any(map(needs_packets, links.values())):
                expected = "`network: {offload: off}`: otherwise netem cannot emulate this link"
                yield (*path, fault.name), "offload: on", expected


def _check_targets(scenario: Scenario) -> Iterator[Finding]:
    """Check that every selector matches nodes, and that there are enough to draw from."""
    classes, others = scenario.workers.worker_classes(), feeders(scenario)
    of_workers = (
        f"a worker (w0 to w{len(classes) - 1}), a pattern like 'w[0-9]', or class=NAME "
        f"with a class of workers ({', '.join(scenario.workers.classes)})"
    )
    for place, fault in enumerate(scenario.faults):
        path = ("faults", place)
        key, expected = ("workers", of_workers) if fault.targets_workers else _feeders(scenario)
        for selector in fault.unmatched_selectors(classes, others):
            yield (*path, key), display(selector), expected
        available = len(fault.candidates(classes, others))
        if fault.count is not None and fault.count > available:
            expected = f"at most {available:,}, the number of nodes that match the selectors"
            found = f"{fault.count:,}"
            yield (*path, "count"), found, expected


def _feeders(scenario: Scenario) -> tuple[str, str]:
    """Return the field that selects nodes that feed streams, and its valid values."""
    if scenario.streams is None:
        return "nodes", "none: there are no producers or brokers without `streams`"
    if scenario.simulated:
        return "nodes", "none: a simulation has neither producers nor a broker"
    return "nodes", f"one of {', '.join(feeders(scenario))}, or a pattern like 'producer*'"


def _check_engine(scenario: Scenario) -> Iterator[Finding]:
    """Check that no node has to start again after its container has exited."""
    for place, worker in rejoining(
        scenario.faults, scenario.workers.worker_classes(), seed=scenario.seed
    ):
        expected = "a worker that has not left before: its container cannot be started again"
        yield ("faults", place), f"a join of w{worker}, which has left before", expected
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, Kill) and fault.duration is not None:
            path = ("faults", place, "for")
            expected = "no duration: the container exits too; kafka's `restart` restarts a broker"
            yield path, str(fault.duration), expected


def _check_link(scenario: Scenario, path: Keys, link: LinkSpec, whose: str) -> Iterator[Finding]:
    """Check a link as changed by a fault: the kernel must be able to create it."""
    for direction, shape in (("up", link.up), ("down", link.down)):
        if shape.jitter is not None and shape.delay is not None and shape.jitter > shape.delay:
            found = f"a delay below the jitter of {whose}"
            expected = f"a delay of at least the jitter, {shape.jitter * scenario.time_scale:g} s"
            place = (*path, direction, "delay")
            yield place, found, expected
    for direction, reason in unshapable(link):
        yield (*path, direction), "", "", f"{whose}: {reason}"


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
        yield ("model",), found, f"a model that predicts {targets}, the targets of {dataset}"
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
