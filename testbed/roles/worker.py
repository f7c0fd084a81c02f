"""A worker: pulls, trains, thinks and pushes until the parameter server ends the training."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from testbed.algorithms.frame.actions import Loop
from testbed.algorithms.frame.compute import OwnCompute
from testbed.algorithms.frame.worker import Worker
from testbed.datasets.streams import RateMeter, Receiver, Reception
from testbed.errors import NodeError, RejectedError, UserCodeError
from testbed.host.admission import await_admission
from testbed.payloads import Vector
from testbed.payloads.keyed import KeyCaches
from testbed.roles.arguments import Arguments, connect, limits
from testbed.roles.clock import EmulatedClock
from testbed.roles.device import DEADLINE_SECONDS, Device
from testbed.roles.direct import DirectReceiver
from testbed.roles.heartbeat import Heartbeat, interval
from testbed.roles.process import TerminatedError, run, sleep_small, wait_for_end
from testbed.roles.shared_compute import SharedCompute
from testbed.roles.stream import DeviceStream, Receipt
from testbed.roles.warm_up import load_kernels
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.client import Connection
from testbed.rpc.codec import decode_orders
from testbed.scenario.experiment import Experiment
from testbed.scenario.transfers import quiet_seconds
from testbed.values.user_code import OwnCode, one_process

LAST_WORD_SECONDS = 1.0
"""How long a worker that stops early tries to report that it leaves."""


def main(arguments: Mapping[str, str], opened: Experiment | None = None) -> int:
    """Train to the end, then keep the connection open until SIGTERM. Return the exit status."""
    return run(arguments.get("node", "worker"), lambda: _main(Arguments.parse(arguments), opened))


def _main(arguments: Arguments, opened: Experiment | None) -> None:
    await_admission()  # before it runs the user's code, or calls the broker
    experiment = arguments.experiment(opened)
    shared = _shared_compute(experiment, arguments)
    parameters = None if shared is None else shared.parameters
    index, process = arguments.index, arguments.process
    worker = experiment.worker(index, process=process, parameters=parameters)
    layout, clock = experiment.network.layout, EmulatedClock(experiment.scenario.time_scale)
    follows = worker.half.config.SENDS_ORDERS
    stream = device_stream(experiment, arguments, worker=worker, clock=clock)
    compute = shared or _own_compute(experiment, arguments, worker.half.parameters, stream)
    address = f"ipv4:{arguments.server}"  # literal, so that no name is looked up
    heartbeat = Heartbeat(every=interval(experiment.scenario.workers.count))
    with heartbeat.beating(), connect(address, arguments, experiment=experiment) as connection:
        device = Device(
            index=index,
            compute=compute,
            parameters=worker.half.parameters,
            data=experiment.data,
            fingerprint=layout.fingerprint,
            size=layout.size,
            step=experiment.step(index, process=process),
            each_sample=experiment.each_sample(index),
            connection=connection,
            clock=clock,
            paced_first=follows or worker.half.config.WAKES,
            wakes=worker.wakes,
            encoding=experiment.scenario.encoding,
            keys=KeyCaches() if worker.half.config.SENDS_KEYS else None,
            gap=heartbeat.take,
            sleep=time.sleep if shared is None else sleep_small,
            slow=partial(told, str(arguments.slow), 1.0),
            stood=partial(told, str(arguments.stood), 0.0),
            stream=stream,
            own=worker.half.config.PAYLOADS,
            client=experiment.client(index),
            bound=compute.bound if isinstance(compute, OwnCompute) else None,
        )
        if stream is not None:
            stream.report = partial(_report_receipt, connection, index)
            stream.connect()  # training starts only once all streams are connected
        _join(device, experiment)
        if follows:
            follow_orders(connection, index, worker, clock)
        try:
            drive(worker.loop(), device, own=isinstance(experiment.scenario.algorithm, OwnCode))
        except (TerminatedError, RejectedError):
            with suppress(NodeError, RejectedError):  # leaving is best effort
                device.leave(deadline_seconds=LAST_WORD_SECONDS)
            raise
        if stream is not None:
            stream.report(stream.receipt())
        with suppress(NodeError):  # the server may have ended already
            device.leave()
        wait_for_end()  # the connection's counters are read while it is open


def _shared_compute(experiment: Experiment, arguments: Arguments) -> SharedCompute | None:
    """Connect to the node that computes gradients; None for a worker that does this itself."""
    if not arguments.compute_token:
        return None
    return SharedCompute(
        arguments.compute_socket,
        arguments.compute_token,
        size=experiment.network.worker_layout.size,
        patience_seconds=arguments.patience_seconds,
    )


def _own_compute(
    experiment: Experiment, arguments: Arguments, at: Vector, stream: DeviceStream | None
) -> OwnCompute:
    """Return what computes a worker's gradients in its process, at the parameters ``at``."""
    computes_on = arguments.open_device()
    bound = experiment.network.bind(at, device=computes_on)
    compute = OwnCompute(stream or experiment.data, at, bound)
    if computes_on is not None:
        load_kernels(compute, experiment.data, batch_size=experiment.scenario.workers.batch_size)
    return compute


def device_stream(
    experiment: Experiment, arguments: Arguments, *, worker: Worker, clock: EmulatedClock
) -> DeviceStream | None:
    """Create the stream of a worker's samples; None without streams."""
    scenario, index = experiment.scenario, arguments.index
    if scenario.streams is None:
        return None
    assert worker.source is not None, "a new worker has a source of samples"
    arrivals = experiment.arrivals()
    assert arrivals is not None, "the scenario has streams"
    own, kept = arrivals[index], scenario.streams.kept_seconds
    stream = DeviceStream(
        _receiver(experiment, arguments),
        Reception(
            experiment.records,
            scenario.streams.policy.buffer(),
            RateMeter(own.rate),
            removable=lambda now: own.count(now - kept),
        ),
        experiment.data,
        clock,
        batch_size=scenario.workers.batch_size,
        own=len(worker.source.samples),
        patience=scenario.streams.patience,
        quiet=quiet_seconds(scenario),
    )
    worker.source, worker.look = None, stream.look
    return stream


def _report_receipt(connection: Connection, index: int, receipt: Receipt) -> None:
    """Report what has arrived of the stream; the server may have ended already."""
    request = ps_pb2.ReceivedRequest(worker=index, **receipt._asdict())
    with suppress(NodeError, RejectedError):
        connection.call(
            methods.RECEIVED, request.SerializeToString(), deadline_seconds=DEADLINE_SECONDS
        )


def _receiver(experiment: Experiment, arguments: Arguments) -> Receiver:
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


def told(file: str, otherwise: float) -> float:
    """Return the number in a file of the controller or agent; ``otherwise`` without the file."""
    if not os.access(file, os.F_OK):  # on every step; pathlib would make five calls
        return otherwise
    try:
        return float(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:  # deleted in between
        return otherwise


def _join(device: Device, experiment: Experiment) -> None:
    """Join; blame the user's own model if the server refuses it as a different model."""
    try:
        device.join()
    except RejectedError as error:
        model, found = experiment.scenario.model, f"{device.fingerprint:016x}"
        if isinstance(model, OwnCode) and found in error.message:
            found_at = f"{model.file}: {model.class_name} differs between nodes"
            raise UserCodeError(f"{found_at}: {error.message}") from None
        raise


def drive(loop: Loop, device: Device, *, own: bool = False) -> None:
    """Run the loop on the device to its end.

    Args:
        loop: the worker's loop.
        device: performs its actions.
        own: whether its algorithm is the user's own, which may fork.

    Raises:
        RejectedError: the server refused a push.
        NodeError: the server cannot be reached, or violates the contract.
    """
    send = one_process()(loop.send) if own else loop.send
    try:
        action = next(loop)
        while True:
            action = send(device.perform(action))
    except StopIteration:
        return


def follow_orders(connection: Connection, index: int, worker: Worker, clock: EmulatedClock) -> None:
    """Pass orders to a worker as they arrive, in a separate thread from its steps."""
    newest = 0

    def request() -> bytes:
        return ps_pb2.FollowOrdersRequest(worker=index, after=newest).SerializeToString()

    def follow() -> None:
        nonlocal newest
        for message in connection.follow(methods.FOLLOW_ORDERS, request):
            standing = decode_orders(message)
            newest = standing.number
            worker.order(standing, clock.now)

    threading.Thread(target=follow, name="orders", daemon=True).start()
