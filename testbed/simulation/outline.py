"""A summary of what a simulation of a scenario models, available before the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

from testbed.errors import HostError
from testbed.models.compute import vectors_at_once
from testbed.runtimes import RayPool, Simulated
from testbed.scenario.devices import devices
from testbed.scenario.schema import Scenario
from testbed.values.topology import Direction
from testbed.values.units import Quantity

MODELLED = (
    "the PS's link is shared max-min fairly by the active transfers, each limited by its own link",
    "a message on a link: payload, 200 bytes of gRPC, 66 bytes of headers for every 1,448",
    "a worker's own link: a token bucket as deep as the kernel's, then the rate",
    "a lost packet: its bytes again, and one round trip per retry",
    "coding, with the durations of `codec`",
    "an evaluation costs no emulated time",
)
LEFT_OUT = (
    "TCP's slow start and congestion control",
    "queues that overflow",
    "bursts of losses",
    "the PS's own token bucket",
    "the transfer of stream samples to the devices",
    "jitter within a message: it is drawn once per message",
    "the host's speed",
)
BYTES_PER_PARAMETER = 4
VECTORS_PER_WORKER = 3
"""The reply in transit, the worker's own model, and the PS's state for the worker."""

VECTORS_ELSEWHERE = 1
"""How many of these another host has, if the worker's process is there: its own model."""

CLOCK_BYTES = 350_000_000
"""Memory of the virtual clock's process, with all imports."""

PROCESS_BYTES = 100_000_000
"""Private memory of a process forked from it."""


@dataclass(frozen=True)
class ClassOutline:
    """One device class: number of workers, step and think time, and its links in words."""

    name: str
    workers: int
    step_seconds: float
    think: str
    up: str
    down: str


@dataclass(frozen=True)
class Outline:
    """Summary of the simulation's model.

    Attributes:
        ps_up: the PS's link to the workers; ``ps_down`` is the link from them.
        updates_per_second: upper bound from steps, thinking and the PS, per emulated second;
            transfers reduce it.
        memory_bytes: approximate memory need; None for a model of unknown size.
        gradients: where gradients are computed.
    """

    classes: tuple[ClassOutline, ...]
    ps_up: str
    ps_down: str
    ps_service: str
    updates_per_second: float
    memory_bytes: int | None
    gradients: str
    modelled: tuple[str, ...] = MODELLED
    left_out: tuple[str, ...] = LEFT_OUT


def outline(scenario: Scenario, *, parameters: int | None, processes: int) -> Outline:
    """Summarise what a simulation of the scenario in ``processes`` processes models.

    ``parameters`` is None if only the user's own code knows the size of the model.
    """
    workers = scenario.workers
    counts = workers.class_counts()
    batch = workers.batch_size
    steps = {name: member.mean_step(batch) or 0.0 for name, member in workers.classes.items()}
    thinks = {name: workers.think_of(name) for name in counts}
    means = {name: 0.0 if one is None else float(one.mean) for name, one in thinks.items()}
    cycles = Counter(
        means[one.device_class] + (0.0 if one.pace is None else one.pace.mean(batch))
        for one in devices(scenario)
    )
    pace = sum(count / seconds if seconds else inf for seconds, count in cycles.items())
    think = {
        name: "none" if one is None else f"{one.law} x {one.mean}" for name, one in thinks.items()
    }
    service, memory, pool = scenario.ps.service, None, ray_pool(scenario)
    if parameters is not None:
        here = 0 if pool else processes
        at_once = gradients_at_once(scenario)
        memory = memory_bytes(workers.count, parameters, processes=here, at_once=at_once)
    return Outline(
        classes=tuple(
            ClassOutline(
                *(name, counts[name], steps[name], think[name]),
                *(describe(way, one.link.mtu) for way in (one.link.up, one.link.down)),
            )
            for name, one in workers.classes.items()
        ),
        ps_up=describe(scenario.ps.link.up, scenario.ps.link.mtu),
        ps_down=describe(scenario.ps.link.down, scenario.ps.link.mtu),
        ps_service=f"{service} per request, one at a time" if service else "no time",
        updates_per_second=min(pace, 1 / service if service else inf),
        memory_bytes=memory,
        gradients=_gradients(scenario, processes),
    )


def ray_pool(scenario: Scenario) -> RayPool | None:
    """Return the Ray pool of a simulation; None if its processes are on this host."""
    pool = scenario.runtime.pool if isinstance(scenario.runtime, Simulated) else None
    return pool if isinstance(pool, RayPool) else None


def gradients_at_once(scenario: Scenario) -> int:
    """Return how many gradients a process of the pool computes at once, if the network can."""
    return scenario.runtime.vmap if isinstance(scenario.runtime, Simulated) else 1


def _gradients(scenario: Scenario, processes: int) -> str:
    runtime = scenario.runtime
    on_gpu = isinstance(runtime, Simulated) and runtime.device == "cuda"
    count = gradients_at_once(scenario)
    at_once = f", {count} gradients at once" if count > 1 else ""
    if pool := ray_pool(scenario):
        actors = f"{pool.processes} processes" if pool.processes else "a process per CPU"
        return f"{actors} of the Ray cluster at {pool.address}{', each on a GPU' * on_gpu}{at_once}"
    where = "sharing this host's GPU (cuda)" if on_gpu else "each on a CPU"
    return f"{processes} processes, {where}{at_once}"


def memory_bytes(workers: int, parameters: int, *, processes: int, at_once: int = 1) -> int:
    """Estimate the memory that a simulation needs on its host; 0 processes: they are elsewhere.

    Not counted are the activations of gradients that are computed ``at_once``.
    """
    here = VECTORS_PER_WORKER - (0 if processes else VECTORS_ELSEWHERE)
    vectors = here * workers * parameters * BYTES_PER_PARAMETER
    each = PROCESS_BYTES + vectors_at_once(at_once) * parameters * BYTES_PER_PARAMETER
    return vectors + CLOCK_BYTES + each * processes


def actor_bytes(workers: int, parameters: int, *, processes: int, at_once: int = 1) -> int:
    """Estimate the memory that each process needs if they are on other hosts.

    That is its imports, and of each of its workers the model and the reply or update in transit;
    and the models and updates of a message, of as many workers as gradients at once.
    """
    own = -(-workers // processes)
    sent = 2 * at_once if at_once > 1 else 0
    vectors = 2 * own + sent + vectors_at_once(at_once)
    return CLOCK_BYTES + vectors * parameters * BYTES_PER_PARAMETER


def require_memory(
    workers: int, parameters: int, *, processes: int, available: int, at_once: int = 1
) -> None:
    """Refuse a simulation that needs more than the available bytes of memory on this host.

    Raises:
        HostError: not enough memory; says how many workers would fit.
    """
    needed = memory_bytes(workers, parameters, processes=processes, at_once=at_once)
    if needed <= available:
        return
    fixed = memory_bytes(0, parameters, processes=processes, at_once=at_once)
    most = max(0, (available - fixed) * workers // max(1, needed - fixed))
    hint = f"Use fewer workers: --workers {most}" if most else "Use a host with more memory"
    raise HostError(
        f"not enough memory to simulate {workers:,} workers with models of {parameters:,} "
        f"parameters: about {needed / 1e6:,.0f} MB needed, "
        f"{available / 1e6:,.0f} MB available.",
        hint=f"{hint}; `testbed plan` shows the estimate.",
    )


def describe(direction: Direction, mtu: int | None = None) -> str:
    """Describe a direction of a link, such as ``10mbit, 20ms ± 2ms normal, 1 % lost``.

    Rates and delays that were drawn are rounded.
    """
    parts = [] if direction.rate is None else [_rounded(direction.rate)]
    if direction.delay:
        jitter = direction.jitter
        varies = f" ± {jitter} {direction.distribution or 'normal'}" if jitter else ""
        parts.append(f"{_rounded(direction.delay)}{varies}")
    if direction.loss:
        parts.append(f"{direction.loss * 100:.6g} % lost")
    if mtu is not None:
        parts.append(f"mtu {mtu}")
    return ", ".join(parts) or "no limits, no delay"


def _rounded(value: Quantity) -> str:
    """Return a quantity with at most four digits, in its largest unit that gives 1 or more."""
    number = float(f"{float(value):.4g}")
    return str(type(value)(number))
