"""``testbed export prometheus``: runs as OpenMetrics, for import into Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from testbed.cli.complete import complete_run
from testbed.cli.options import find, runs_option


@click.command("prometheus")
@click.argument("run", nargs=-1, required=True, shell_complete=complete_run)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The file to write.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@click.option(
    "--at",
    default="run",
    show_default=True,
    metavar="run|now|TIME",
    help="Timestamps: those of the runs; or shift all runs to the same start, so that the "
    "longest ends now or at the given time.",
)
@click.option(
    "--metrics-per-worker",
    is_flag=True,
    help="Export metrics of each worker even if there are more than 300 workers.",
)
@runs_option
def command(
    run: tuple[str, ...], out: Path, force: bool, at: str, metrics_per_worker: bool, runs: Path
) -> None:
    """Export ended RUNs (names or paths), live or simulated, as OpenMetrics with timestamps.

    `promtool tsdb create-blocks-from openmetrics FILE DIR` makes blocks of it for Prometheus.
    """
    found = list(dict.fromkeys(find(text, runs).path for text in run))
    count = write(found, out, force=force, at=at, per_worker=metrics_per_worker)
    click.echo(f"wrote {count:,} samples of {len(found)} runs to {out}")


def write(runs: Sequence[Path], out: Path, *, force: bool, at: str, per_worker: bool) -> int:
    """Write runs, given by their folders, to ``out``; return the number of samples.

    Raises:
        ScenarioError: ``out`` exists, or its parent folder does not; ``at`` is not a time.
        TestbedError: a run has not ended, or is damaged.
    """
    from testbed.errors import Problem, ScenarioError, TestbedError
    from testbed.plan.written import read_plan
    from testbed.reports.frames import Run
    from testbed.reports.metrics.openmetrics import write_openmetrics
    from testbed.reports.metrics.replay import Replay
    from testbed.telemetry.files import replacing

    end = _end(at)
    if out.exists() and not force:
        wanted = "a file that does not exist yet"
        raise ScenarioError(
            [Problem("--out", 0, "", str(out), wanted, "Choose another file, or add --force.")]
        )
    if not out.parent.is_dir():
        wanted = "a file in an existing folder"
        raise ScenarioError([Problem("--out", 0, "", str(out), wanted)])
    found = [Run(folder) for folder in runs]
    for one in found:
        if one.alive:
            raise TestbedError(
                f"{one.name} is still running.",
                hint="`testbed up --metrics` serves the metrics of a running run. To export "
                f"them, wait until it has ended: testbed wait {one.name}",
            )
    replays = [Replay(one, read_plan(one.folder), per_worker=per_worker) for one in found]
    with replacing(out) as fresh, fresh.open("w", encoding="utf-8") as file:
        return write_openmetrics(file, replays, end=end)


def _end(at: str) -> float | None:
    """Return the end of the longest run, seconds since 1970; None keeps the actual times.

    Raises:
        ScenarioError: ``at`` is not a time.
    """
    import time
    from datetime import datetime

    from testbed.errors import Problem, ScenarioError

    if at == "run":
        return None
    try:
        return time.time() if at == "now" else datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        wanted = "run, now or a time like 2026-10-01T12:00"
        raise ScenarioError([Problem("--at", 0, "", repr(at), wanted)]) from None
