"""``testbed up``: runs a scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.options import runtime_option

if TYPE_CHECKING:
    from testbed.cli.background import Background, Started
    from testbed.cli.live import LiveDisplay
    from testbed.orchestrator.prepare import Request
    from testbed.orchestrator.runtime import Settled
    from testbed.orchestrator.setup import Setup
    from testbed.reports.remake import Report
    from testbed.runtimes.users import Users
    from testbed.scenario.override import Override
    from testbed.telemetry.folder import RunFolder
    from testbed.telemetry.record import Recorder

INVALID = 6


@click.command("up")
@click.argument("scenario", type=click.Path(path_type=Path))
@runtime_option
@click.option("--workers", type=int, metavar="N", help="Short for --set workers.count=N.")
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="Replace a value.")
@click.option("--name", metavar="NAME", help="The run's name; by default made from the scenario's.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
    help="Where the run's folder is made.",
)
@click.option("--detach", is_flag=True, help="Return when it trains; it goes on by itself.")
@click.option("--keep", is_flag=True, help="Keep the containers after the end, until `down`.")
def command(
    scenario: Path,
    runtime: str | None,
    workers: int | None,
    settings: tuple[str, ...],
    name: str | None,
    runs: Path,
    detach: bool,
    keep: bool,
) -> int:
    """Run SCENARIO: bring its containers up, train, measure, tear down.

    Exits with 6 if the run came to its end but its measurements cannot be trusted.
    """
    from testbed.cli.background import Foreground, split
    from testbed.cli.host import require_linux
    from testbed.cli.names import check_name
    from testbed.cli.overrides import overrides

    require_linux("up")
    check_name(name)
    side = split() if detach else None
    if isinstance(side, Foreground):
        return _announce(side.wait())
    asked = overrides(settings, workers=workers, runtime=runtime)
    request = _request(scenario, asked, name=name, runs=runs)
    if request.scenario.simulated:
        return _simulate(request, detach=detach, keep=keep)
    with _explained(scenario, runs):
        return _run(request, background=side, keep=keep)


def _request(file: Path, asked: Sequence[Override], *, name: str | None, runs: Path) -> Request:
    import os
    import sys
    import time

    from testbed.orchestrator.prepare import Request
    from testbed.scenario import load

    return Request(
        scenario=load(file, overrides=asked),
        beside=file.parent,
        runs=runs,
        name=name,
        argv=tuple(sys.argv),
        environment=os.environ,
        home=Path.home(),
        now=time.time(),
    )


@contextmanager
def _explained(scenario: Path, runs: Path) -> Iterator[None]:
    """Say where a write failed, which does not say so itself, and who knows more of this host."""
    from testbed.errors import HostError

    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(runs)
        raise
    except HostError as error:
        doctor = f"`testbed doctor {scenario}` looks for all that is missing."
        and_so = " " if error.hint.endswith(".") else "; "  # it may end with a command
        error.hint = f"{error.hint}{and_so}{doctor}" if error.hint else doctor
        raise


def _simulate(request: Request, *, detach: bool, keep: bool) -> int:
    """A simulation: no containers that could go on, or be kept."""
    from testbed.cli.virtual import run_simulation

    if detach or keep:
        raise click.UsageError("A simulated run has no containers to --detach from or to --keep.")
    return run_simulation(request)


def _announce(outcome: Started | int) -> int:
    """What to do with a run in the background; of one that does not train, how it ended."""
    if isinstance(outcome, int):
        return outcome
    click.echo(f"{outcome.run} goes on in the background, in {outcome.folder}")
    click.echo(f"  testbed logs {outcome.run} --follow    what its nodes print")
    click.echo(f"  testbed wait {outcome.run}             until its end, with its exit status")
    click.echo(f"  testbed down {outcome.run}             end it now")
    return 0


def _run(request: Request, *, background: Background | None, keep: bool) -> int:
    from testbed.cli.console import Console
    from testbed.cli.live import LiveDisplay
    from testbed.errors import RunNotFound
    from testbed.orchestrator.interrupts import Interrupts
    from testbed.orchestrator.prepare import prepare_data
    from testbed.orchestrator.run import Execution, NotTornDown

    request, settled, users = _settle(request)
    display = LiveDisplay(Console())
    with Interrupts() as interrupts:
        with interrupts.allowed():
            data = prepare_data(request)
        setup, recorder = _set_up(request, settled, data, users=users)
        display.phase(f"run {setup.folder.name}")
        try:
            Execution(
                setup=setup,
                driver=settled.driver,
                recorder=recorder,
                observer=display,
                interrupts=interrupts,
                keep=keep,
                in_training=_leaving(background, display, setup.folder) if background else None,
            ).carry_out()
        except BaseException as failure:
            with suppress(OSError, RunNotFound):  # what went wrong first is what has to be told
                _conclude(setup.folder, display, torn_down=not isinstance(failure, NotTornDown))
            raise
        report = _conclude(setup.folder, display)
    return 0 if report.summary["verdict"]["valid"] else INVALID


def _settle(request: Request) -> tuple[Request, Settled, Users]:
    """The request with the runtime that is taken, where this user may and there is the memory."""
    from dataclasses import replace

    from testbed.orchestrator.memory import available_bytes, require_memory
    from testbed.orchestrator.runtime import settle
    from testbed.runtimes.choose import users_of

    settled = settle(request.scenario)
    if settled.choice is not None:
        click.echo(str(settled.choice), err=True)
    users = users_of(settled.runtime)
    require_memory(settled.scenario, available=available_bytes())
    return replace(request, scenario=settled.scenario), settled, users


def _set_up(
    request: Request, settled: Settled, data: Path, *, users: Users
) -> tuple[Setup, Recorder]:
    """The run's folder, with everything in it that is there before the first process."""
    from testbed.orchestrator.prepare import prepare
    from testbed.telemetry.record import Recorder

    setup = prepare(request, data, driver=settled.driver, users=users)
    recorder = Recorder(setup.folder, time_scale=setup.scenario.time_scale)
    if settled.choice is not None:
        recorder.event("runtime", name=settled.runtime.name, why=settled.choice.why)
    return setup, recorder


def _conclude(folder: RunFolder, display: LiveDisplay, *, torn_down: bool = True) -> Report:
    from testbed.cli.report import conclude

    report = conclude(folder.path, display)
    if torn_down:
        click.echo(_what_is_left(folder))
    return report


def _leaving(background: Background, display: LiveDisplay, folder: RunFolder) -> Callable[[], None]:
    """What to do when a run trains that is to go on in the background."""
    from testbed.cli.background import Started

    def leave() -> None:
        display.close()
        background.go_on(Started(folder.name, folder.path), folder.log("controller"))

    return leave


def _what_is_left(folder: RunFolder) -> str:
    interrupted = folder.state().state == "interrupted"  # whoever ends the run may hold its lock
    if interrupted or not folder.alive():
        return "everything is torn down"
    return (
        "kept: its containers are there until you end them\n"
        f"  testbed exec {folder.name} w0 -- COMMAND    runs a command in one of them\n"
        f"  testbed down {folder.name}                  ends them"
    )
