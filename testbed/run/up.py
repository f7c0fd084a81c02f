"""One run from its request to its end: settle, prepare, bring up, watch, tear down, conclude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Protocol

from testbed.errors import NodeError, TestbedError
from testbed.events.kinds import RuntimeChosen
from testbed.events.sink import Sink
from testbed.experiment import Experiment
from testbed.plan.budget import require_memory
from testbed.plan.make import plan
from testbed.run.down import BY_DOWN, asked_to_end
from testbed.run.interrupts import Interrupts
from testbed.run.prepare import (
    RunRequest,
    prepare,
    prepare_data,
    prepare_own_data,
    prepare_simulation,
)
from testbed.run.run import Execution, NotTornDown
from testbed.run.runtime import Settled, settle
from testbed.runtimes.choose import users_of
from testbed.scenario import Scenario, load
from testbed.simulation.agenda import Agenda
from testbed.simulation.checkpoint import Checkpoint
from testbed.simulation.run import log_trace, record_simulation
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import available_bytes
from testbed.telemetry.record import Recorder


class Audience(Protocol):
    """Whoever has asked for a run."""

    @property
    def sink(self) -> Sink:
        """Is told all that is written down."""

    def phase(self, text: str) -> None:
        """The run begins."""

    def say(self, text: str) -> None:
        """Something was decided that the scenario had left open."""

    def conclude(self, folder: RunFolder, *, torn_down: bool) -> bool:
        """The run has ended, however it did. Returns whether what it measured is valid.

        Args:
            folder: the run's.
            torn_down: whether its containers are gone, but those that are to be kept; false of a
                simulation, which had none.
        """


def up(
    request: RunRequest,
    audience: Audience,
    *,
    keep: bool = False,
    leave: Callable[[RunFolder], None] | None = None,
) -> bool:
    """Carry out a run that makes containers; returns whether what it measured is valid.

    Args:
        request: what the user asked for.
        audience: is told of it.
        keep: whether the nodes of a run that was not interrupted stay until `testbed down`.
        leave: called when the training has started, of a run that goes on in the background.

    Raises:
        TestbedError: it could not be begun, or failed; then its folder says so too.
        Interrupted: it was interrupted, or ended by `testbed down`; likewise.
    """
    settled = settle(request.scenario)
    if settled.choice is not None:
        audience.say(str(settled.choice))
    request = replace(request, scenario=settled.scenario)
    users = users_of(settled.runtime)
    planned = plan(settled.scenario, settled.scenario.name)
    require_memory(settled.scenario, planned, available=available_bytes())
    with Interrupts() as interrupts:
        with interrupts.allowed():
            data = prepare_data(request)
        setup = prepare(request, planned, data, driver=settled.driver, users=users)
        with _concluded(setup.folder, audience) as valid:
            audience.phase(f"run {setup.folder.name}")
            Execution(
                setup=setup,
                driver=settled.driver,
                recorder=_recorder(setup.folder, settled, audience.sink),
                interrupts=interrupts,
                keep=keep,
                in_training=None if leave is None else lambda: leave(setup.folder),
            ).carry_out()
    return valid()


def up_simulated(request: RunRequest, audience: Audience) -> bool:
    """Simulate a run into a folder of its own; returns whether what it measured is valid.

    Raises:
        TestbedError: it could not be begun, or failed; then its folder says so too.
        Interrupted: it was interrupted; likewise.
    """
    with Interrupts() as interrupts, interrupts.allowed():
        data = prepare_data(request)
        folder = prepare_simulation(request)
        with _concluded(folder, audience, contained=False) as valid:
            audience.phase(f"run {folder.name} (simulated)")
            try:
                experiment = Experiment.open(folder.path, data=data)
            except TestbedError as error:
                log_trace(error, folder)
                folder.move(
                    "failed", now=request.now, reason=error.message, exit_code=error.exit_code
                )
                raise
            _record(experiment, folder, audience)
    return valid()


def resume(folder: RunFolder, audience: Audience, *, environment: Mapping[str, str]) -> bool:
    """Go on with a simulated run that was broken off, from its checkpoint; see ``up_simulated``.

    Raises:
        TestbedError: it has come to its end, goes on, was not simulated, or has no checkpoint of
            its scenario; nothing was changed.
    """
    scenario = resumable(folder)
    with Interrupts() as interrupts, interrupts.allowed():
        data = prepare_own_data(scenario, folder, environment)
        experiment = Experiment.open(folder.path, data=data)
        with _concluded(folder, audience, contained=False) as valid:
            audience.phase(f"run {folder.name} (simulated), resumed")
            _record(experiment, folder, audience, resumes=True)
    return valid()


def resumable(folder: RunFolder) -> Scenario:
    """The scenario of a run that can go on from its checkpoint.

    Raises:
        TestbedError: it cannot; says why, and what can be done.
    """
    state, name = folder.state().state, folder.name
    scenario = load(folder.scenario, custom_files=folder.custom)
    if state == "finished":
        raise NodeError(f"{name} has come to its end: there is nothing to resume.")
    if not scenario.simulated:
        raise NodeError(
            f"{name} was no simulation: its containers have ended, and nothing of them goes on.",
            hint=f"`testbed up {folder.scenario} --name NAME` runs it again from its beginning. A "
            "parameter server that dies while its run goes on is started again by itself.",
        )
    if folder.alive():
        raise NodeError(f"{name} goes on.", hint=f"`testbed wait {name}` waits for its end.")
    Checkpoint.open(folder)
    return scenario


def _record(
    experiment: Experiment, folder: RunFolder, audience: Audience, *, resumes: bool = False
) -> None:
    record_simulation(
        experiment,
        folder,
        agenda=Agenda(),
        sinks=[audience.sink],
        interrupted=lambda: BY_DOWN if asked_to_end(folder) else "interrupted",
        resumes=resumes,
    )


def _recorder(folder: RunFolder, settled: Settled, sink: Sink) -> Recorder:
    recorder = Recorder.into(folder, time_scale=settled.scenario.time_scale, sinks=[sink])
    if settled.choice is not None:
        recorder.event(RuntimeChosen(settled.runtime.name, settled.choice.why))
    return recorder


@contextmanager
def _concluded(
    folder: RunFolder, audience: Audience, *, contained: bool = True
) -> Iterator[Callable[[], bool]]:
    """Have the run concluded after the body, also if that fails; yields what the verdict was."""
    verdict: list[bool] = []
    try:
        yield verdict.pop
    except BaseException as failure:
        with suppress(OSError, TestbedError):  # what went wrong first is what has to be told
            audience.conclude(folder, torn_down=contained and not isinstance(failure, NotTornDown))
        raise
    verdict.append(audience.conclude(folder, torn_down=contained))
