"""What a simulation of a scenario will model, in words and numbers; known before the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from testbed.scenario.schema import Direction, Link, Scenario

MODELLED = (
    "the PS's link is shared max-min fairly by the transfers under way, each within its own link",
    "a message on a link: payload, 200 bytes of gRPC, 66 bytes of headers for every 1,448",
    "a worker's own link: a token bucket as deep as the kernel's, then the rate",
    "a lost packet: its bytes once more, and a round trip until all have arrived",
    "an evaluation costs no emulated time",
)
LEFT_OUT = (
    "TCP's slow start and congestion control",
    "queues that overflow",
    "losses that come in bursts",
    "the PS's own token bucket",
    "jitter within a message: it is drawn once for each",
    "the host's speed",
)
BYTES_PER_PARAMETER = 4
VECTORS_PER_WORKER = 3
"""The reply on its way, the worker's own model, and what the PS remembers of the worker."""

PROCESS_BYTES = 350_000_000


@dataclass(frozen=True)
class ClassOutline:
    """One class of devices.

    Attributes:
        name: of the class.
        workers: how many.
        step_seconds: a training step, emulated.
        up: its links' way to the PS, in words.
        down: the way back.
    """

    name: str
    workers: int
    step_seconds: float
    up: str
    down: str


@dataclass(frozen=True)
class Outline:
    """What will be modelled.

    Attributes:
        classes: see ClassOutline.
        think: the law of the wait between computing and pushing, with its mean.
        ps_up: the PS's link to the workers.
        ps_down: the PS's link from the workers.
        ps_service: how the PS serves requests, in words.
        updates_per_second: the most that steps, thinking and the PS allow, emulated; transfers make
            it fewer.
        memory_bytes: about what it needs; None for a model of unknown size.
        modelled: sentences on the rest.
        left_out: what is not modelled.
    """

    classes: tuple[ClassOutline, ...]
    think: str
    ps_up: str
    ps_down: str
    ps_service: str
    updates_per_second: float
    memory_bytes: int | None
    modelled: tuple[str, ...] = MODELLED
    left_out: tuple[str, ...] = LEFT_OUT


def outline(scenario: Scenario, *, parameters: int | None, processes: int) -> Outline:
    """What a simulation of the scenario will model.

    Args:
        scenario: one that is simulated: every class has a speed.
        parameters: of its model; None where only the user's own code knows.
        processes: how many will compute gradients.
    """
    think, workers = scenario.workers.think, scenario.workers
    mean = 0.0 if think is None else float(think.mean)
    counts = workers.class_counts()
    steps = {name: float(member.speed or 0.0) for name, member in workers.classes.items()}
    cycles = sum(counts[name] / (steps[name] + mean) for name in counts)
    service, memory = scenario.ps.service, None
    if parameters is not None:
        vectors = VECTORS_PER_WORKER * workers.count * parameters * BYTES_PER_PARAMETER
        memory = vectors + PROCESS_BYTES * (1 + processes)
    return Outline(
        classes=tuple(
            ClassOutline(name, counts[name], steps[name], *_ways(member.link))
            for name, member in workers.classes.items()
        ),
        think="none" if think is None else f"{think.law} x {think.mean}",
        ps_up=_words(scenario.ps.link.up),
        ps_down=_words(scenario.ps.link.down),
        ps_service=f"{service} a request, one after the other" if service else "takes no time",
        updates_per_second=min(cycles, 1 / service if service else inf),
        memory_bytes=memory,
    )


def _ways(link: Link) -> tuple[str, str]:
    return _words(link.up), _words(link.down)


def _words(direction: Direction) -> str:
    """A direction of a link, such as ``10mbit, 20ms ± 2ms normal, 1 % lost``."""
    return ", ".join(_parts(direction)) or "takes no time"


def _parts(direction: Direction) -> Iterator[str]:
    if direction.rate is not None:
        yield str(direction.rate)
    if direction.delay is not None:
        jitter = direction.jitter
        varies = f" ± {jitter} {direction.distribution or 'normal'}" if jitter is not None else ""
        yield f"{direction.delay}{varies}"
    if direction.loss is not None:
        yield f"{direction.loss * 100:.6g} % lost"
