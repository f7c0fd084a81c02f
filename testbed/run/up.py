"""One run from its request to its end: settle, prepare, bring up, watch, tear down, conclude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from testbed.errors import RunNotFound, TestbedError
from testbed.host.gpus import find_gpus
from testbed.plan.budget import count_parameters, require_memory
from testbed.plan.gpus import deal_gpus, want_gpus
from testbed.plan.make import VALUE_BYTES, plan
from testbed.reports.remake import libraries_imported, remake
from testbed.run.data import model_size, prepare_data, with_model_cost
from testbed.run.interrupts import Interrupts
from testbed.run.metering import Metering
from testbed.run.prepare import RunRequest, WorkloadRequest, prepare
from testbed.run.prepare_workload import prepare_workload
from testbed.run.run import Execution, NotTornDown
from testbed.run.runtime import Settled, settle, settle_workload, users_of
from testbed.run.setup import Setup
from testbed.run.training import Training
from testbed.run.workload import WorkloadCourse
from testbed.telemetry.event_kinds import RuntimeChosen
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import available_bytes
from testbed.telemetry.record import Recorder
from testbed.telemetry.sink import Sink
from testbed.values.topology import Gpu


@dataclass
class RunListener:
    """The listener of a run, for the caller that requested it; this one shows nothing."""

    sink: Sink = field(default_factory=Sink)  # receives all records

    def phase(self, text: str) -> None:
        """Announce a phase of the run."""

    def say(self, text: str) -> None:
        """Report a decision that the scenario had left open."""

    def conclude(self, folder: RunFolder, *, torn_down: bool) -> bool:
        """Conclude a run that has ended in any way; return whether its measurements are valid.

        Args:
            folder: the run's.
            torn_down: whether its containers were removed, except those to be kept; false for a
                simulation, which had none.
        """
        return bool(remake(folder.path).summary["verdict"]["valid"])


@contextmanager
def concluded(
    folder: RunFolder, listener: RunListener, *, now: float, contained: bool = True
) -> Iterator[Callable[[], bool]]:
    """Conclude the run after the body, even if that fails; yield a function for the verdict.

    A run that ended before it recorded its own end counts as failed.
    """
    verdict: list[bool] = []
    try:
        yield verdict.pop
    except BaseException as failure:
        with suppress(OSError, TestbedError):
            _not_begun(folder, failure, now=now)
        with suppress(OSError, RunNotFound):  # the first error must be reported
            listener.conclude(folder, torn_down=contained and not isinstance(failure, NotTornDown))
        raise
    verdict.append(listener.conclude(folder, torn_down=contained))


def _not_begun(folder: RunFolder, failure: BaseException, *, now: float) -> None:
    if folder.state().state == "created":
        code = failure.exit_code if isinstance(failure, TestbedError) else TestbedError.exit_code
        interrupted = isinstance(failure, KeyboardInterrupt)
        folder.move(
            "interrupted" if interrupted else "failed",
            now=now,
            reason=str(failure) or type(failure).__name__,
            exit_code=None if interrupted else code,
        )


def up(
    request: RunRequest,
    listener: RunListener,
    *,
    keep: bool = False,
    leave: Callable[[RunFolder], None] | None = None,
    metering: Metering | None = None,
    find_gpus: Callable[[], Sequence[Gpu]] = find_gpus,
) -> bool:
    """Carry out a run with containers; return whether its measurements are valid.

    Args:
        request: the user's request.
        listener: receives the records and messages of the run.
        keep: whether the nodes of a run that was not interrupted stay until `testbed down`.
        leave: called when training has started, for a run that continues in the background.
        metering: exports the metrics of the run until its summary is written.
        find_gpus: finds the host's GPUs, if a node has any.

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
    gpus = find_gpus() if want_gpus(planned) else ()
    planned = deal_gpus(planned, gpus, vector=_vector(count_parameters(settled.scenario)))
    require_memory(settled.scenario, planned, available=available_bytes())
    with Interrupts() as interrupts:
        with interrupts.allowed():
            data = prepare_data(request)
            request = with_model_cost(request, data)
            size = model_size(request, data)
        require_memory(settled.scenario, planned, available=available_bytes(), parameters=size)
        planned = deal_gpus(planned, gpus, vector=_vector(size))
        setup = prepare(request, planned, data, driver=settled.runtime.driver(), users=users)
        with (
            metering or nullcontext(),
            concluded(setup.folder, listener, now=request.now) as valid,
            libraries_imported(),  # while the agent imports torch, this process waits
        ):
            listener.phase(f"run {setup.folder.name}")
            recorder = _recorder(
                setup, settled, listener=listener, metering=metering, interrupts=interrupts
            )
            Execution(
                setup=setup,
                begin=partial(Training, setup),
                driver=settled.runtime.driver(),
                recorder=recorder,
                interrupts=interrupts,
                keep=keep,
                in_training=None if leave is None else lambda: leave(setup.folder),
                metering=metering,
            ).carry_out()
    return valid()


def _vector(parameters: int | None) -> int:
    """Return the bytes of a copy of the model; 0 if its size is unknown yet."""
    return VALUE_BYTES * (parameters or 0)


def up_workload(
    request: WorkloadRequest,
    listener: RunListener,
    *,
    keep: bool = False,
    leave: Callable[[RunFolder], None] | None = None,
    metering: Metering | None = None,
) -> bool:
    """Carry out the run of a workload; arguments, result and errors are those of ``up``."""
    settled = settle_workload(request.scenario)
    if settled.choice is not None:
        listener.say(str(settled.choice))
    request = replace(request, scenario=settled.scenario)
    driver = settled.runtime.driver()
    with Interrupts() as interrupts:
        setup = prepare_workload(request, driver=driver, users=users_of(settled.runtime))
        with (
            metering or nullcontext(),
            concluded(setup.folder, listener, now=request.now) as valid,
        ):
            listener.phase(f"run {setup.folder.name}")
            recorder = _recorder(
                setup, settled, listener=listener, metering=metering, interrupts=interrupts
            )
            Execution(
                setup=setup,
                begin=partial(WorkloadCourse, setup),
                driver=driver,
                recorder=recorder,
                interrupts=interrupts,
                keep=keep,
                in_training=None if leave is None else lambda: leave(setup.folder),
                metering=metering,
            ).carry_out()
    return valid()


def _recorder(
    setup: Setup,
    settled: Settled[Any],
    *,
    listener: RunListener,
    metering: Metering | None,
    interrupts: Interrupts,
) -> Recorder:
    """Return the recorder of a run, which the caller and the exporter of metrics listen to."""
    scale = settled.scenario.time_scale
    recorder = Recorder.into(setup.folder, time_scale=scale, sinks=[listener.sink])
    if settled.choice is not None:
        recorder.event(RuntimeChosen(settled.runtime.name, settled.choice.why))
    if metering is not None:
        metering.attach(setup, recorder, interrupts)
        listener.say(f"metrics: {metering.exporter.url}")
    return recorder
