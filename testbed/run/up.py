"""One run from its request to its end: settle, prepare, bring up, watch, tear down, conclude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.errors import RunNotFound, TestbedError
from testbed.host.gpus import find_gpus
from testbed.payloads import VALUE_BYTES
from testbed.plan.budget import count_parameters, require_memory
from testbed.plan.gpus import deal_gpus
from testbed.plan.make import plan
from testbed.reports.remake import libraries_imported, remake
from testbed.run.course import Connected, Course
from testbed.run.data import model_size, prepare_data, with_model_cost
from testbed.run.hosts import (
    check_hosts,
    copy_data_to,
    copy_image_to,
    place_on_hosts,
    require_memory_on_hosts,
)
from testbed.run.interrupts import Interrupts
from testbed.run.metering import Metering
from testbed.run.prepare import Request, RunRequest, prepare
from testbed.run.prepare_workload import prepare_workload
from testbed.run.run import Execution, NotTornDown
from testbed.run.settle import Settled, settle, users_of
from testbed.run.setup import Setup
from testbed.run.training import Training
from testbed.run.workload import WorkloadCourse
from testbed.runtimes.lock import controlling
from testbed.scenario.schema import Scenario
from testbed.telemetry.event_kinds import RuntimeChosen
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import available_bytes
from testbed.telemetry.record import Recorder
from testbed.telemetry.sink import Sink
from testbed.values.topology import Gpu, Plan


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
    with controlling(folder):
        try:
            yield verdict.pop
        except BaseException as failure:
            with suppress(OSError, TestbedError):
                _not_begun(folder, failure, now=now)
            torn_down = contained and not isinstance(failure, NotTornDown)
            with suppress(OSError, RunNotFound):  # the first error must be reported
                listener.conclude(folder, torn_down=torn_down)
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
    request: Request[Any],
    listener: RunListener,
    *,
    keep: bool = False,
    leave: Callable[[RunFolder], None] | None = None,
    metering: Metering | None = None,
    find_gpus: Callable[[], Sequence[Gpu]] = find_gpus,
) -> bool:
    """Carry out a run with containers; return whether its measurements are valid.

    Args:
        request: the user's request, of a training or a workload.
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
    driver, users = settled.runtime.driver(), users_of(settled.runtime)
    trains = isinstance(settled.scenario, Scenario)
    with Interrupts() as interrupts:
        setup: Setup
        begin: Callable[[Connected], Course]
        if trains:
            with interrupts.allowed():
                request, planned, data = _planned(request, find_gpus, listener.say)
                if planned.hosts:
                    check_hosts(planned)
                    image = driver.check(planned.here)["nodes"]
                    copy_image_to(planned.hosts, image, phase=listener.phase)
                    copy_data_to(planned.hosts, data, image, phase=listener.phase)
            training = prepare(request, planned, data, driver=driver, users=users)
            setup, begin = training, partial(Training, training)
        else:
            workload = prepare_workload(request, driver=driver, users=users, find_gpus=find_gpus)
            setup, begin = workload, partial(WorkloadCourse, workload)
        with (
            metering or nullcontext(),
            concluded(setup.folder, listener, now=request.now) as valid,
            # while the agent imports torch, this process waits
            libraries_imported() if trains else nullcontext(),
        ):
            listener.phase(f"run {setup.folder.name}")
            recorder = _recorder(
                setup, settled, listener=listener, metering=metering, interrupts=interrupts
            )
            Execution(
                setup=setup,
                begin=begin,
                driver=driver,
                recorder=recorder,
                interrupts=interrupts,
                keep=keep,
                in_training=None if leave is None else lambda: leave(setup.folder),
                metering=metering,
            ).carry_out()
    return valid()


def _planned(
    request: RunRequest, find_gpus: Callable[[], Sequence[Gpu]], say: Callable[[str], None]
) -> tuple[RunRequest, Plan, Path]:
    """Return the request with the model's cost, the plan with its GPUs, and the data's folder."""
    scenario = request.scenario
    planned = plan(scenario, scenario.name)
    gpus = find_gpus() if planned.wants_gpus else ()
    planned = deal_gpus(planned, gpus, vector=_vector(count_parameters(scenario)))
    planned = place_on_hosts(scenario, planned, count_parameters(scenario), say=say)
    if not planned.hosts:
        require_memory(scenario, planned, available=available_bytes())
    data = prepare_data(request)
    request = with_model_cost(request, data)
    size = model_size(request, data)
    if planned.hosts:
        require_memory_on_hosts(scenario, planned, size)
    else:
        require_memory(scenario, planned, available=available_bytes(), parameters=size)
    return request, deal_gpus(planned, gpus, vector=_vector(size)), data


def _vector(parameters: int | None) -> int:
    """Return the bytes of a copy of the model; 0 if its size is unknown yet."""
    return VALUE_BYTES * (parameters or 0)


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
