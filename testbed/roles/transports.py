"""The transports of records that a scenario can select, with both ends of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from testbed.datasets.streams import Receiver, Sender
from testbed.roles.arguments import Arguments, limits
from testbed.roles.direct import DirectReceiver, DirectSender, answering
from testbed.rpc.client import Connection
from testbed.scenario import Scenario
from testbed.scenario.experiment import Experiment
from testbed.scenario.streams import Kafka

CLOSE_SECONDS = 5.0
"""Time for a producer to close its connection to the broker."""


@asynccontextmanager
async def sending(
    experiment: Experiment,
    arguments: Arguments,
    *,
    devices: Iterable[int],
    failed: Callable[[BaseException], None],
) -> AsyncIterator[Sender]:
    """Open a producer's end for these devices; ``failed`` receives unexpected errors.

    Raises:
        HostError: this host cannot provide what it needs.
        NodeError: the broker does not exist, or the producer cannot write to it.
    """
    if arguments.topics:
        from testbed.roles.kafka import connect_sender

        loop = asyncio.get_running_loop()
        through, producer = connect_sender(
            arguments.source,
            arguments.topics,
            devices,
            failed=lambda error: loop.call_soon_threadsafe(failed, error),
            linger_seconds=linger_seconds(experiment.scenario),
        )
        try:
            yield through
        finally:
            producer.close(timeout=CLOSE_SECONDS)
        return
    sender = DirectSender(devices)
    async with answering(arguments.source, sender, token=arguments.token, failed=failed):
        yield sender


def linger_seconds(scenario: Scenario) -> float:
    """Return how long a record may wait for a batch to the broker, real seconds."""
    assert scenario.streams is not None and isinstance(scenario.streams.transport, Kafka)
    return scenario.streams.transport.linger / scenario.time_scale


def receiver(experiment: Experiment, arguments: Arguments) -> Receiver:
    """Open a device's end.

    Raises:
        NodeError: the broker does not exist, or the device cannot read from it.
    """
    if arguments.topics:
        from testbed.roles.kafka import connect_receiver

        return connect_receiver(arguments.source, arguments.topics, arguments.index)
    connection = Connection(
        f"ipv4:{arguments.source}",
        token=arguments.source_token,
        limits=limits(experiment),
        patience_seconds=arguments.patience_seconds,
        peer="the producer",
    )
    return DirectReceiver(arguments.index, connection)
