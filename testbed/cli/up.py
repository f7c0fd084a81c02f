"""``testbed up``: runs a scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.complete import complete_run
from testbed.cli.flower import removed_if_refused, write_scenario
from testbed.cli.options import (
    find,
    hosts_option,
    new_runs_option,
    overrides,
    runtime_option,
    settings_option,
    workers_option,
)
from testbed.errors import INVALID

if TYPE_CHECKING:
    from testbed.run.metering import Metering
    from testbed.scenario.override import Override

ANY_PORT = "127.0.0.1:0"
NO_METRICS = "--metrics-per-worker and --insecure-listen need --metrics or --metrics-address."
OF_FLOWER = ("flower", "devices", "profile", "python")
NO_FLOWER = "--devices, --profile and --python need --flower APP."
ONE_OF_THREE = (
    "Name a SCENARIO, or a run to repeat with --again RUN, or a Flower app with --flower APP."
)
NO_SCRAPES = (
    "A simulated run cannot be scraped; export its metrics: testbed export prometheus RUN --out "
    "FILE"
)
NO_CONTAINERS = "--detach and --keep need containers; a simulated run has none."


@click.command("up")
@click.argument("scenario", type=click.Path(path_type=Path), required=False)
@click.option(
    "--again",
    metavar="RUN",
    shell_complete=complete_run,
    help="Repeat RUN with its scenario, code and traces, instead of a SCENARIO.",
)
@click.option(
    "--flower",
    metavar="APP",
    type=click.Path(path_type=Path),
    help="Run the Flower app in this folder, and write its scenario, instead of a SCENARIO.",
)
@click.option(
    "--devices", type=click.IntRange(min=1), metavar="N", help="With --flower: N SuperNodes."
)
@click.option(
    "--profile", metavar="LINK", help="With --flower: a shipped link for each, such as lte."
)
@click.option(
    "--python",
    metavar="ENV",
    type=click.Path(path_type=Path),
    help="With --flower: a Python environment with flwr.",
)
@runtime_option
@hosts_option
@workers_option
@settings_option
@click.option(
    "--name", metavar="NAME", help="The name of the run; by default derived from the scenario's."
)
@new_runs_option
@click.option(
    "--detach", is_flag=True, help="Run in the background: return when training has started."
)
@click.option(
    "--keep", is_flag=True, help="Keep the containers after the run ends, until `testbed down`."
)
@click.option("--metrics", is_flag=True, help="Serve metrics for Prometheus during the run.")
@click.option(
    "--metrics-address",
    metavar="ADDR:PORT",
    help="Serve metrics at this address; by default 127.0.0.1 and a free port.",
)
@click.option(
    "--metrics-per-worker",
    is_flag=True,
    help="Serve metrics of each worker even if there are more than 300 workers.",
)
@click.option(
    "--insecure-listen", is_flag=True, help="Allow an address that other hosts can reach."
)
def up(
    scenario: Path | None,
    again: str | None,
    runtime: str | None,
    hosts: str | None,
    workers: int | None,
    settings: tuple[str, ...],
    name: str | None,
    runs: Path,
    detach: bool,
    keep: bool,
    **others: Any,
) -> int:
    """Run SCENARIO: start its containers, train, measure, and remove them.

    The scenario.yaml in a run folder is also a scenario; a simulation that repeats it has
    bit-identical results. Exits with 6 if the run finished, but its verdict is not valid.
    """
    from testbed.host.requirements import require_linux

    require_linux("up")  # before imports such as torch, which would fail
    from testbed.cli.terminal import Foreground, Terminal, split
    from testbed.host.cuda import has_cuda
    from testbed.reports.live_workload import display_of
    from testbed.run.prepare import Request, check_run_name
    from testbed.run.simulated import carry_out
    from testbed.scenario.load import with_source_lines
    from testbed.scenario.load_workload import load_any
    from testbed.scenario.source import find_scenario

    of_flower = {option: others.pop(option) for option in OF_FLOWER}
    listen = _listening(**others)
    check_run_name(name)
    asked = overrides(settings, workers=workers, runtime=runtime, hosts=hosts)
    scenario, is_new = _flower(scenario, again, asked, **of_flower)
    scenario = _scenario(scenario, again, runs)
    side = split() if detach else None
    if isinstance(side, Foreground):
        return _announce(side.wait())
    loaded = load_any(scenario, overrides=asked, has_cuda=has_cuda)
    request = Request.of(loaded, beside=find_scenario(scenario).parent, runs=runs, name=name)
    if loaded.simulated and (detach or keep):
        raise click.UsageError(NO_CONTAINERS)
    if loaded.simulated and listen:
        raise click.UsageError(NO_SCRAPES)
    doctor = _doctor(None if is_new else scenario, runtime=runtime, hosts=hosts, workers=workers)
    terminal = Terminal(display_of(loaded))
    leave = None if side is None else terminal.leaving(side)
    with removed_if_refused(scenario, lambda: terminal.has_run) if is_new else nullcontext():
        metering = listen() if listen else None
        with (
            with_source_lines(scenario, asked),
            nullcontext() if loaded.simulated else _explained(doctor, runs),
        ):
            valid = carry_out(request, terminal, keep=keep, leave=leave, metering=metering)
    return 0 if valid else INVALID


def _listening(
    metrics: bool, metrics_address: str | None, metrics_per_worker: bool, insecure_listen: bool
) -> Callable[[], Metering] | None:
    """Return what starts to listen for scrapes; None if no metrics were requested."""
    from testbed.reports.metrics.exporter import parse_address
    from testbed.run.metering import Metering

    address = metrics_address or (ANY_PORT if metrics else None)
    if address is not None:
        host, port = parse_address(address, insecure=insecure_listen)
        return lambda: Metering.at(host, port, per_worker=metrics_per_worker)
    if metrics_per_worker or insecure_listen:
        raise click.UsageError(NO_METRICS)
    return None


def _flower(
    file: Path | None,
    again: str | None,
    asked: Sequence[Override],
    flower: Path | None,
    **settings: Any,
) -> tuple[Path | None, bool]:
    """Return the given file, or that of the Flower app, and whether that was written here."""
    if flower is None:
        if any(value is not None for value in settings.values()):
            raise click.UsageError(NO_FLOWER)
        return file, False
    if file is not None or again is not None:
        raise click.UsageError(ONE_OF_THREE)
    return write_scenario(flower, asked, **settings)


def _scenario(file: Path | None, again: str | None, runs: Path) -> Path:
    """Return the path of the scenario to run: the given file, or that of a run."""
    if (file is None) == (again is None):
        raise click.UsageError(ONE_OF_THREE)
    if again is not None:
        return find(again, runs).scenario
    assert file is not None, "checked above"
    return file


@contextmanager
def _explained(doctor: str, runs: Path) -> Iterator[None]:
    """Add the path to write errors that lack it, and how to check the host to its errors."""
    from testbed.errors import HostError

    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(runs)
        raise
    except HostError as error:
        checks = f"`{doctor}` checks all requirements."
        and_so = " " if error.hint.endswith(".") else "; "  # it may end with a command
        error.hint = f"{error.hint}{and_so}{checks}" if error.hint else checks
        raise


def _doctor(scenario: Path | None, **options: str | int | None) -> str:
    """Return the command that checks the hosts of a run: `testbed doctor` with its options."""
    if scenario is None:
        return "testbed doctor"
    given = (f" --{name} {value}" for name, value in options.items() if value is not None)
    return f"testbed doctor {scenario}{''.join(given)}"


def _announce(outcome: Path | int) -> int:
    """Print how to use a run in the background; return the exit status."""
    if isinstance(outcome, int):
        return outcome
    run = outcome.name
    click.echo(f"{run} runs in the background, in {outcome}")
    click.echo(f"  testbed logs {run} --follow    shows the output of its nodes")
    click.echo(
        f"  testbed wait {run}             waits until it ends, and exits with its exit code"
    )
    click.echo(f"  testbed down {run}             stops it")
    return 0
