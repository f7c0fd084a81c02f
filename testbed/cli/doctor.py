"""``testbed doctor``: checks this host."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.options import (
    hosts_option,
    overrides,
    print_json,
    print_table,
    runs_option,
    runtime_option,
)
from testbed.host.requirements import require_linux

if TYPE_CHECKING:
    from testbed.run.doctor.host import ExaminedRun
    from testbed.runtimes import Real
    from testbed.runtimes.base import Finding

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}
MISSING = 3
DEFAULT_WORKERS = 12


@click.command("doctor")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@runtime_option
@hosts_option
@click.option("--workers", type=int, metavar="N", help="Check the host for this number of workers.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    file: Path | None,
    runtime: str | None,
    hosts: str | None,
    workers: int | None,
    runs: Path,
    as_json: bool,
) -> int:
    """Check that this host can run the scenario in FILE; without FILE, scenarios in general.

    Starts a container and a link, measures them, and removes them. Exits with 3 if a requirement
    of `testbed up` is missing.
    """
    from testbed.run.doctor import examine

    require_linux("doctor")
    if file is None and hosts is not None:
        raise click.UsageError("--hosts needs FILE, a scenario.")
    case, taken, findings = _case(file, runtime, hosts, workers=workers, runs=runs)
    findings += examine(case, taken, phase=partial(click.echo, err=True))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    return MISSING if any(finding.level == "missing" for finding in findings) else 0


def _case(
    file: Path | None, runtime: str | None, hosts: str | None, *, workers: int | None, runs: Path
) -> tuple[ExaminedRun, Real, list[Finding]]:
    """Return what to check, for which runtime, and how the runtime was chosen if it is auto."""
    from testbed.datasets import user_cache
    from testbed.plan.budget import budget, count_parameters
    from testbed.plan.make import plan
    from testbed.plan.workload import plan_workload
    from testbed.run.doctor.host import ExaminedRun
    from testbed.scenario.load_workload import load_any
    from testbed.scenario.workload import Workload

    if file is None:
        taken, findings = _settle(_runtime(runtime), gpu=False)
        made, needs, many = None, None, workers or DEFAULT_WORKERS
    else:
        asked = overrides((), workers=workers, runtime=runtime, hosts=hosts)
        scenario = load_any(file, overrides=asked)
        made = (
            plan_workload(scenario, scenario.name)
            if isinstance(scenario, Workload)
            else plan(scenario, scenario.name)
        )
        taken, findings = _settle(scenario.runtime, gpu=made.wants_gpus)
        many = len(made.devices)
        needs = None
        if not isinstance(scenario, Workload):
            settled = scenario.model_copy(update={"runtime": taken})
            made = plan(settled, settled.name)  # its nodes may depend on the runtime
            needs = budget(settled, made, count_parameters(settled))
    kept = taken.capabilities.container_bytes
    case = ExaminedRun(many, runs, os.environ, user_cache(os.environ), made, needs, kept)
    return case, taken, findings


def _runtime(text: str | None) -> Any:
    """Return the runtime from ``--runtime`` when there is no scenario."""
    from pydantic import ValidationError

    from testbed.errors import Problem, ScenarioError
    from testbed.runtimes import RUNTIME, names

    try:
        return RUNTIME.validate_python(text or "native")
    except ValidationError:
        problem = Problem(f"--runtime {text}", 0, "", "", " or ".join(("auto", *names())))
        raise ScenarioError([problem]) from None


def _settle(runtime: Any, *, gpu: bool) -> tuple[Real, list[Finding]]:
    """Choose the runtime to check; for a simulation, which needs no containers, check native."""
    from testbed.run.settle import choose
    from testbed.runtimes import Auto, Native, Simulated
    from testbed.runtimes.base import Finding

    if isinstance(runtime, Auto):
        choice = choose(gpu=gpu)
        return choice.runtime, [Finding("runtime", "ok", str(choice))]
    return Native(name="native") if isinstance(runtime, Simulated) else runtime, []


def _print(findings: list[Finding]) -> None:
    from rich.text import Text

    rows = []
    for finding in findings:
        found = Text(finding.found)
        if finding.level != "ok" and finding.fix:
            found.append(f"\n{finding.fix}", style="italic")
        level = Text(finding.level, style=COLOURS[finding.level])
        rows.append((Text(finding.check), level, found))
    print_table(("check", "", "found"), rows)
    missing = sum(finding.level == "missing" for finding in findings)
    click.echo(f"{missing} missing: `testbed up` would fail" if missing else "`testbed up` can run")
