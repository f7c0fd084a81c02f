"""One run from its request to its end: settle, prepare, bring up, watch, tear down, conclude."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from testbed.plan.budget import require_memory
from testbed.plan.make import plan
from testbed.reports.remake import libraries_imported
from testbed.run.interrupts import Interrupts
from testbed.run.listener import RunListener, concluded
from testbed.run.metering import Metering
from testbed.run.prepare import RunRequest, model_size, prepare, prepare_data
from testbed.run.run import Execution
from testbed.run.runtime import Settled, settle
from testbed.runtimes.choose import users_of
from testbed.telemetry.event_kinds import RuntimeChosen
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import available_bytes
from testbed.telemetry.record import Recorder
from testbed.telemetry.sink import Sink


def up(
    request: RunRequest,
    listener: RunListener,
    *,
    keep: bool = False,
    leave: Callable[[RunFolder], None] | None = None,
    metering: Metering | None = None,
) -> bool:
    """Carry out a run with containers; return whether its measurements are valid.

    Args:
        request: the user's request.
        listener: receives the records and messages of the run.
        keep: whether the nodes of a run that was not interrupted stay until `testbed down`.
        leave: called when training has started, for a run that continues in the background.
        metering: exports the metrics of the run until its summary is written.

    Raises:
        TestbedError: it could not be started, or failed; then its folder says so too.
        Interrupted: it was interrupted, or ended by `testbed down`; likewise.
    """
    settled = settle(request.scenario)
    if settled.choice is not None:
        listener.say(str(settled.choice))
    request = replace(request, scenario=settled.scenario)
    users = users_of(settled.runtime)
    planned = plan(settled.scenario, settled.scenario.name)
    require_memory(settled.scenario, planned, available=available_bytes())
    with Interrupts() as interrupts:
        with interrupts.allowed():
            data = prepare_data(request)
            size = model_size(request, data)
        require_memory(settled.scenario, planned, available=available_bytes(), parameters=size)
        setup = prepare(request, planned, data, driver=settled.driver, users=users)
        with (
            metering or nullcontext(),
            concluded(setup.folder, listener, now=request.now) as valid,
            libraries_imported(),  # while the agent imports torch, this process waits
        ):
            listener.phase(f"run {setup.folder.name}")
            recorder = _recorder(setup.folder, settled, listener.sink)
            if metering is not None:
                metering.attach(setup, recorder)
                listener.say(f"metrics: {metering.exporter.url}")
            Execution(
                setup=setup,
                driver=settled.driver,
                recorder=recorder,
                interrupts=interrupts,
                keep=keep,
                in_training=None if leave is None else lambda: leave(setup.folder),
                metering=metering,
            ).carry_out()
    return valid()


def _recorder(folder: RunFolder, settled: Settled, sink: Sink) -> Recorder:
    recorder = Recorder.into(folder, time_scale=settled.scenario.time_scale, sinks=[sink])
    if settled.choice is not None:
        recorder.event(RuntimeChosen(settled.runtime.name, settled.choice.why))
    return recorder
