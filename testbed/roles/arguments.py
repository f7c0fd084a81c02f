"""What a role is told when it is launched, and how it reaches the parameter server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed import faults
from testbed.errors import NodeError
from testbed.experiment import Experiment
from testbed.rpc.client import PATIENCE_SECONDS, Connection
from testbed.rpc.limits import MessageLimits
from testbed.scenario.direction import Link
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import LEAST_RATE, places

LABEL_BYTES = 8
"""Of a shared sample's label, and of its number."""


@dataclass(frozen=True)
class Arguments:
    """A role's arguments.

    Attributes:
        node: its name in the run, such as ``w3``.
        index: number of a worker, 0 for the others.
        folder: holds ``scenario.yaml``, ``data``, ``ps``, ``sockets`` and, if used, ``custom``.
        server: ``address:port`` at which the parameter server answers workers.
        token: what it shows the parameter server; of that one itself, the run's secret.
        patience_seconds: real time for which a peer that went silent is waited for.
        source: ``address:port`` at which records of streams are to be had; of a producer whom the
            devices ask, its own. Empty without streams.
        source_token: what a worker shows there.
        topics: with a broker, what the names of its topics begin with.
    """

    node: str
    index: int
    folder: Path
    server: str
    token: str
    patience_seconds: float = PATIENCE_SECONDS
    source: str = ""
    source_token: str = ""
    topics: str = ""

    @classmethod
    def parse(cls, arguments: Mapping[str, str]) -> Arguments:
        """Read them as they come from the launcher.

        Raises:
            NodeError: one is missing, unknown or not a number.
        """
        values = dict(arguments)
        try:
            parsed = cls(
                node=values.pop("node"),
                index=int(values.pop("index", "0")),
                folder=Path(values.pop("folder")),
                server=values.pop("server", ""),
                token=values.pop("token"),
                patience_seconds=float(values.pop("patience", PATIENCE_SECONDS)),
                source=values.pop("source", ""),
                source_token=values.pop("source_token", ""),
                topics=values.pop("topics", ""),
            )
        except KeyError as missing:
            raise NodeError(f"a role was launched without its argument {missing}") from None
        except ValueError as error:
            raise NodeError(
                f"a role was launched with an argument of the wrong kind: {error}"
            ) from None
        if values:
            raise NodeError(f"a role was launched with unknown arguments: {', '.join(values)}")
        if not parsed.token:
            raise NodeError("a role was launched with an empty token")
        return parsed

    def experiment(self, opened: Experiment | None) -> Experiment:
        """The run's: the one that was opened before this process was forked, or read now."""
        return opened.moved(self.folder) if opened else Experiment.open(self.folder)

    @property
    def ps_folder(self) -> Path:
        """The parameter server's own folder."""
        return self.folder / "ps"

    @property
    def slow(self) -> Path:
        """Of a worker that a fault has slowed down: how many times as long its steps take."""
        return self.folder / "slow" / self.node

    @property
    def socket(self) -> Path:
        """The unix socket for snapshots and reports."""
        return self.folder / "sockets" / "ps.sock"


def connect(address: str, arguments: Arguments, *, experiment: Experiment) -> Connection:
    """A role's connection to the parameter server."""
    return Connection(
        address,
        token=arguments.token,
        limits=limits(experiment),
        patience_seconds=arguments.patience_seconds,
    )


def limits(experiment: Experiment) -> MessageLimits:
    """What one connection allows, given the model and the links of the scenario.

    A ping may have to wait for the whole model on the thinnest link, and for the models of all
    workers on the parameter server's, and for the end of a partition.
    """
    scenario, size = experiment.scenario, experiment.network.layout.size
    links: list[Link | faults.ChangedLink] = [
        member.link for member in scenario.workers.classes.values()
    ]
    links += [fault for fault in scenario.faults if isinstance(fault, faults.ChangedLink)]
    slowest = max(_seconds_per_byte(link) for link in links)
    if any(place.what == "rate" for place in places(scenario)):
        slowest = max(slowest, 1 / LEAST_RATE.bytes_per_second)
    shared = _seconds_per_byte(scenario.ps.link) * scenario.workers.count
    emulated_seconds = 4 * size * max(slowest, shared) + longest_partition(scenario)
    return MessageLimits.of(
        size,
        transfer_seconds=emulated_seconds / scenario.time_scale,
        beside=_shared_bytes(experiment),
    )


def _shared_bytes(experiment: Experiment) -> int:
    """What the samples take that a worker shares at once, at the most."""
    most = experiment.algorithm.most_shared(experiment.scenario.workers.batch_size)
    return most * (experiment.sample_bytes + 2 * LABEL_BYTES)


def longest_partition(scenario: Scenario) -> float:
    """Emulated seconds; TCP tries again at most as long after its end as it has lasted."""
    partitions = [fault for fault in scenario.faults if isinstance(fault, faults.Partition)]
    return max((float(fault.duration or 0.0) for fault in partitions), default=0.0)


def _seconds_per_byte(link: Link | faults.ChangedLink) -> float:
    """Of a link's thinner direction, in emulated time; 0 if neither has a rate."""
    rates = (direction.rate for direction in (link.up, link.down))
    return max((1 / rate.bytes_per_second for rate in rates if rate is not None), default=0.0)
