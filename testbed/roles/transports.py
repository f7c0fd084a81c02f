"""The transports of records that a scenario can ask for, each with its two ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from testbed.errors import NodeError
from testbed.experiment import Experiment
from testbed.roles.arguments import Arguments, limits
from testbed.roles.direct import DirectReceiver, DirectSender, answering
from testbed.rpc.client import Connection
from testbed.scenario.streams import Direct
from testbed.streams import Receiver, Sender


@asynccontextmanager
async def sending(
    experiment: Experiment,
    arguments: Arguments,
    *,
    devices: Iterable[int],
    failed: Callable[[BaseException], None],
) -> AsyncIterator[Sender]:
    """A producer's end, for these devices; ``failed`` is told of an error nobody foresaw.

    Raises:
        HostError: what it needs cannot be had on this host.
    """
    streams = experiment.scenario.streams
    if streams is None or not isinstance(streams.transport, Direct):
        raise NodeError(f"{arguments.node}: the scenario has no transport for records")
    sender = DirectSender(devices)
    async with answering(arguments.source, sender, token=arguments.token, failed=failed):
        yield sender


def receiver(experiment: Experiment, arguments: Arguments) -> Receiver:
    """A device's end."""
    connection = Connection(
        f"ipv4:{arguments.source}",
        token=arguments.source_token,
        limits=limits(experiment),
        patience_seconds=arguments.patience_seconds,
        peer="the producer",
    )
    return DirectReceiver(arguments.index, connection)
