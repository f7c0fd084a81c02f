"""What no single field can tell: files beside the scenario, links the kernel can have, ports."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.algorithms import Adsp
from testbed.algorithms.base import AlgorithmConfig
from testbed.errors import Problem
from testbed.network.qdiscs import qdiscs_of
from testbed.rpc.limits import LARGEST_MODEL
from testbed.runtimes import Simulated
from testbed.scenario.commands import addressed, linked_nodes
from testbed.scenario.direction import Link
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.durations import LEAST_INTERVAL
from testbed.scenario.fault_checks import check_faults
from testbed.scenario.links import link_spec
from testbed.scenario.scalars import display
from testbed.scenario.schema import DeviceClass, PsSettings, Scenario
from testbed.scenario.stream_checks import check_streams
from testbed.scenario.targets import ill_fitting
from testbed.values.family import full_form
from testbed.values.units import Duration

MOST_WORKERS = 1022
SIMULATED_HAVE_MORE = "A simulation has no switch: `runtime: simulated`"
"""A Linux bridge has 1,023 ports, and one of them is the parameter server's."""

PARAMETER_BYTES = 4

TAKEN = re.compile(r"ps|evaluator|agent|controller|broker|w\d+|probe\d*|producer\d*")
"""Names of nodes, and of whatever else has a log."""


def check_files(document: Document, locate: Callable[[str], Path]) -> Iterator[Problem]:
    """The user's own files must be where ``locate`` says."""
    for family in ("algorithm", "model", "dataset"):
        member = full_form(document.at((family,)))
        if not isinstance(member, dict) or member.get("name") != "custom":
            continue
        file = member.get("file")
        # Path.is_file would raise for a name that is too long.
        if isinstance(file, str) and not os.path.isfile(locate(file)):  # noqa: PTH113
            expected = f"the {family}'s Python file, relative to the folder of the scenario"
            found = f"no file {display(file)}"
            yield problem_at(document, (family, "file"), found=found, expected=expected)


def check_device(
    scenario: Scenario, document: Document, has_cuda: Callable[[], bool]
) -> Iterator[Problem]:
    """A simulation that is to compute on a GPU begins only where there is one."""
    wants = isinstance(scenario.runtime, Simulated) and scenario.runtime.device == "cuda"
    if wants and not has_cuda():
        expected = "a GPU that the installed PyTorch can use, or cpu: it finds none here"
        yield problem_at(document, ("runtime", "device"), found="cuda", expected=expected)


def check_whole(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """What a valid scenario may still ask for in vain."""
    if scenario.simulated:
        yield from _check_simulation(scenario, document)
    elif scenario.workers.count + len(scenario.programs) > MOST_WORKERS:
        programs = f" and {len(scenario.programs):,} programs" if scenario.programs else ""
        yield problem_at(
            document,
            ("workers", "count"),
            found=f"{scenario.workers.count:,}{programs}",
            expected=f"at most {MOST_WORKERS:,} workers: a switch has one port more, the PS's",
            hint=SIMULATED_HAVE_MORE,
        )
    if scenario.codec is not None and not scenario.simulated:
        expected = "runtime: simulated: what coding takes is measured in a live run, not stated"
        found = f"runtime {scenario.runtime.name}"
        yield problem_at(document, ("codec",), found=found, expected=expected)
    yield from _check_programs(scenario, document)
    yield from check_faults(scenario, document)
    saved = None if scenario.checkpoint is None else scenario.checkpoint.every
    for part, every, what in (
        ("evaluate", scenario.evaluate.every, "evaluations"),
        ("checkpoint", saved, "checkpoints"),
    ):
        if isinstance(every, Duration) and every < LEAST_INTERVAL:
            expected = f"{LEAST_INTERVAL} or more: {what} would come one upon the other"
            yield problem_at(document, (part, "every"), found=str(every), expected=expected)
    yield from _check_algorithm(scenario, document)
    yield from check_streams(scenario, document)
    yield from _check_measured(scenario, document)
    images = scenario.dataset.images
    for path, found, expected in ill_fitting(scenario, None if images is None else images[1]):
        yield problem_at(document, path, found=found, expected=expected)
    parameters = None if images is None else scenario.model.parameters(*images)
    if parameters is not None and not scenario.simulated and (unfit := beyond_wire(parameters)):
        yield problem_at(document, ("model",), found=unfit[0], expected=unfit[1])
    if not scenario.runtime.capabilities.gpus:
        yield from _check_no_gpus(scenario, document)
    links: dict[Keys, Link] = {("ps", "link"): scenario.ps.link}
    for name, member in scenario.workers.classes.items():
        links[("workers", "classes", name, "link")] = member.link
    for name, program in scenario.programs.items():
        links[("programs", name, "link")] = program.link
    for path, link in links.items():
        try:
            qdiscs_of(link_spec(link, address="", mac="", time_scale=scenario.time_scale))
        except ValueError as error:
            direction, _, reason = str(error).partition(": ")
            yield problem_at(document, (*path, direction), hint=reason)


def beyond_wire(parameters: int) -> tuple[str, str] | None:
    """What was found and expected of a model that is too large to be sent; None if it is not."""
    most = int(LARGEST_MODEL) // PARAMETER_BYTES
    if parameters <= most:
        return None
    size = parameters * PARAMETER_BYTES / 2**20
    found = f"a model with {parameters:,} parameters, {size:,.1f} MiB"
    return found, f"at most {most:,}, {LARGEST_MODEL}"


def _check_measured(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """What ends the run by a measurement is measured before it ends otherwise."""
    stop, every = scenario.stop, scenario.evaluate.every
    end = stop.time if isinstance(every, Duration) else stop.updates
    if every is None or end is None or every < end:
        return
    for field in ("accuracy", "loss"):
        wanted = getattr(stop, field)
        if wanted is not None:
            unit = "" if isinstance(every, Duration) else " updates"
            found = f"{wanted:g}, and an evaluation every {every}{unit}"
            expected = f"evaluations before the end at {end}{unit}: a smaller evaluate.every"
            yield problem_at(document, ("stop", field), found=found, expected=expected)


def _check_algorithm(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """What an algorithm has no use for, and a time of its own that evaluations must fit."""
    algorithm, every = scenario.algorithm, scenario.evaluate.every
    thinks = not isinstance(algorithm, AlgorithmConfig) or algorithm.THINKS
    waits: dict[Keys, object] = {("workers", "think"): scenario.workers.think}
    for name, member in scenario.workers.classes.items():
        waits[("workers", "classes", name, "think")] = member.think
    for path in [path for path, think in waits.items() if think is not None and not thinks]:
        expected = f"no think time with {algorithm.name}: a class's `speed` sets its pace"
        yield problem_at(document, path, found="a think time", expected=expected)
    packs = not isinstance(algorithm, AlgorithmConfig) or algorithm.PACKS
    if not packs and scenario.encoding != "raw":
        expected = f"raw: what {algorithm.name} pushes is encoded already"
        yield problem_at(document, ("encoding",), found=scenario.encoding, expected=expected)
    if not isinstance(algorithm, Adsp) or algorithm.commit_rate is not None:
        return
    if isinstance(every, Duration) and not _divides(every, algorithm.check_period):
        found = f"an evaluation every {every}"
        expected = f"a part of a trial, algorithm.check_period, which is {algorithm.check_period}"
        hint = "Trials are judged by evaluations, which are to come at equal intervals"
        yield problem_at(document, ("evaluate", "every"), found=found, expected=expected, hint=hint)


def _divides(part: float, whole: float) -> bool:
    """Whether a duration is a whole number of others, but for their rounding."""
    count = round(whole / part)
    return count >= 1 and abs(whole / part - count) < 1e-6


def _check_simulation(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """A simulation models no container: what one would need, or forbid, cannot be meant."""
    for name, member in scenario.workers.classes.items():
        path: Keys = ("workers", "classes", name)
        if member.speed is None:
            expected = "the emulated time of a step, such as 50ms: nothing is timed when simulated"
            yield problem_at(document, (*path, "speed"), found="nothing", expected=expected)
        yield from _check_unlimited(member, path, document)
    yield from _check_unlimited(scenario.ps, ("ps",), document)
    if scenario.programs:
        expected = "none: a simulation runs no commands; native and docker do"
        found = ", ".join(scenario.programs)
        yield problem_at(document, ("programs",), found=found, expected=expected)
    if scenario.launch != "warm":
        expected = "no launch mode: a simulation launches nothing"
        yield problem_at(document, ("launch",), found=scenario.launch, expected=expected)


def _check_programs(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Their names are nobody else's, and the nodes they name are there."""
    nodes = linked_nodes(scenario)
    for name, program in scenario.programs.items():
        path: Keys = ("programs", name)
        if TAKEN.fullmatch(name):
            expected = "another name: it is, or could be, that of another node or log"
            yield problem_at(document, path, found=name, expected=expected)
        for word in program.command:
            for unknown in [one for one in addressed(word) if one not in nodes]:
                expected = "a node with a link: ps, a worker or a program; {{...}} for plain braces"
                yield problem_at(
                    document, (*path, "command"), found=f"{{{unknown}}}", expected=expected
                )


def _check_no_gpus(scenario: Scenario, document: Document) -> Iterator[Problem]:
    for name, member in scenario.workers.classes.items():
        if member.gpus:
            expected = f"none: runtime {scenario.runtime.name} gives no node a GPU, docker does"
            path: Keys = ("workers", "classes", name, "gpus")
            yield problem_at(document, path, found=str(member.gpus), expected=expected)


def _check_unlimited(
    limited: DeviceClass | PsSettings, path: Keys, document: Document
) -> Iterator[Problem]:
    for field in ("cpu", "cpuset", "memory", "scratch"):
        value = getattr(limited, field)
        if value is not None:
            expected = f"no {field} limit: a simulation models time by the class's speed alone"
            yield problem_at(document, (*path, field), found=str(value), expected=expected)
