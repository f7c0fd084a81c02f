"""The evaluator: measures the model on some test images during training, at the end on all."""

from __future__ import annotations

import os
from collections.abc import Mapping

from testbed.algorithms.frame.stop import Due
from testbed.errors import HostError
from testbed.host.deadline import evaluated_within
from testbed.models import Evaluation
from testbed.models.saved import Measurement, ModelWriter
from testbed.payloads import Vector, zeros
from testbed.roles.arguments import Arguments, connect
from testbed.roles.process import run
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.addresses import unix_address
from testbed.rpc.client import Connection
from testbed.rpc.codec import decode_snapshot
from testbed.rpc.messages import Snapshot
from testbed.scenario.experiment import Experiment
from testbed.values.seeds import seed_globals

NICENESS = 10
DEADLINE_SECONDS = 10.0


def main(arguments: Mapping[str, str], opened: Experiment | None = None) -> int:
    """Evaluate until the final model is measured. Return the exit status."""
    return run(
        arguments.get("node", "evaluator"), lambda: _main(Arguments.parse(arguments), opened)
    )


def _main(arguments: Arguments, opened: Experiment | None) -> None:
    os.nice(NICENESS)  # training has priority
    experiment = arguments.experiment(opened)
    parameters = zeros(experiment.network.layout.size)
    bound = experiment.network.bind(parameters, device=arguments.open_device())
    chosen = experiment.test_samples()
    writer = experiment.model_writer(arguments.folder)
    schedule, due, final = experiment.schedule(), Due(), False
    with (
        unix_address(arguments.socket) as address,
        connect(address, arguments, experiment=experiment) as connection,
    ):
        while not final:
            snapshot = _take(connection, due)
            parameters[:] = snapshot.model.values
            final = snapshot.final
            samples, data = slice(None) if final else chosen, experiment.data
            tested = data.test_images[samples], data.test_labels[samples]
            if experiment.evaluation_seed is not None:
                seed_globals(experiment.evaluation_seed)
            with evaluated_within(experiment.scenario.evaluate.timeout):
                measured = bound.evaluate(
                    *tested, transform=data.transform, metrics=experiment.metrics
                )
                if (held_out := experiment.held_out) is not None:
                    measured = held_out.evaluate(bound, parameters, measured, final=final)
            _save(writer, parameters, Measurement(snapshot.version, snapshot.time, measured, final))
            _report(connection, snapshot, measured)
            due = schedule.after(snapshot.version, snapshot.time)


def _take(connection: Connection, due: Due) -> Snapshot:
    """Fetch the next scheduled snapshot; no deadline, as the wait may be long."""
    request = ps_pb2.SnapshotRequest(least_version=due.version, least_seconds=due.time)
    return decode_snapshot(connection.call(methods.SNAPSHOT, request.SerializeToString()))


def _save(writer: ModelWriter, parameters: Vector, taken: Measurement) -> None:
    try:
        writer.take(parameters, taken)
    except OSError as error:
        raise HostError(f"{writer.folder}: the model cannot be saved: {error.strerror}.") from None


def _report(connection: Connection, snapshot: Snapshot, measured: Evaluation) -> None:
    report = ps_pb2.ReportRequest(
        version=snapshot.version,
        time_seconds=snapshot.time,
        final=snapshot.final,
        loss=measured.loss,
        metrics=[ps_pb2.Metric(name=name, value=one) for name, one in measured.metrics.items()],
        images=measured.images,
    )
    connection.call(methods.REPORT, report.SerializeToString(), deadline_seconds=DEADLINE_SECONDS)
