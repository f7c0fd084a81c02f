"""What a scenario asks of its connections to the parameter server."""

from __future__ import annotations

from testbed.experiment import Experiment
from testbed.roles.arguments import Arguments
from testbed.rpc.client import Connection
from testbed.rpc.limits import Limits
from testbed.scenario.schema import Link


def connect(address: str, arguments: Arguments, *, experiment: Experiment) -> Connection:
    """A role's connection to the parameter server."""
    return Connection(
        address,
        token=arguments.token,
        limits=limits(experiment),
        patience_seconds=arguments.patience_seconds,
    )


def limits(experiment: Experiment) -> Limits:
    """What one connection allows, given the model and the links of the scenario.

    A ping may have to wait for the whole model on the thinnest link, and for the models of all
    workers on the parameter server's.
    """
    scenario, size = experiment.scenario, experiment.network.layout.size
    slowest = max(_seconds_per_byte(member.link) for member in scenario.workers.classes.values())
    shared = _seconds_per_byte(scenario.ps.link) * scenario.workers.count
    emulated_seconds = 4 * size * max(slowest, shared)
    return Limits.of(size, transfer_seconds=emulated_seconds / scenario.time_scale)


def _seconds_per_byte(link: Link) -> float:
    """Of a link's thinner direction, in emulated time; 0 if neither has a rate."""
    rates = (direction.rate for direction in (link.up, link.down))
    return max((1 / rate.bytes_per_second for rate in rates if rate is not None), default=0.0)
