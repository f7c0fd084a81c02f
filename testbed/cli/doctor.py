"""``testbed doctor``: examines this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.options import runs_option

if TYPE_CHECKING:
    from testbed.orchestrator.doctor.findings import Case, Finding

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}
MISSING = 3
DEFAULT_WORKERS = 12


@click.command("doctor")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--workers", type=int, metavar="N", help="Examine for so many workers.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(file: Path | None, workers: int | None, runs: Path, as_json: bool) -> int:
    """Examine this host: has it what `testbed up` needs, for the scenario in FILE or for any?

    Starts a container and a link, measures them, and removes them. Exits with 3 if something is
    missing that `testbed up` cannot do without.
    """
    import json
    from dataclasses import asdict

    from testbed.cli.host import require_linux
    from testbed.orchestrator.doctor.examine import examine
    from testbed.runtimes.native import NativeDriver

    require_linux("doctor")
    findings = list(examine(_case(file, workers, runs), NativeDriver()))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    return MISSING if any(finding.level == "missing" for finding in findings) else 0


def _case(file: Path | None, workers: int | None, runs: Path) -> Case:
    import os

    from testbed.cli.overrides import overrides
    from testbed.datasets import user_cache
    from testbed.orchestrator.budget import budget
    from testbed.orchestrator.doctor.findings import Case
    from testbed.orchestrator.model_size import count_parameters
    from testbed.orchestrator.plan import plan
    from testbed.scenario import load

    cache = user_cache(os.environ)
    if file is None:
        return Case(workers or DEFAULT_WORKERS, runs, os.environ, cache)
    scenario = load(file, overrides=overrides((), workers=workers))
    made = plan(scenario, scenario.name)
    needs = budget(scenario, made, count_parameters(scenario))
    return Case(len(made.workers), runs, os.environ, cache, plan=made, budget=needs)


def _print(findings: list[Finding]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("check", "", "found", box=box.SIMPLE_HEAD)
    for finding in findings:
        found = Text(finding.found)
        if finding.level != "ok" and finding.mend:
            found.append(f"\n{finding.mend}", style="italic")
        level = Text(finding.level, style=COLOURS[finding.level])
        table.add_row(Text(finding.check), level, found)
    Console().print(table)
    missing = sum(finding.level == "missing" for finding in findings)
    click.echo(f"{missing} missing: `testbed up` would fail" if missing else "`testbed up` can run")
