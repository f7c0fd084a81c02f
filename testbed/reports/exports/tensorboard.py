"""Export to TensorBoard: one folder per run, with its scalars, scenario and summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.reports.exports import folder_a_run, lacks
from testbed.reports.exports.scalars import scalars
from testbed.reports.run_page import numbers_table
from testbed.reports.text_table import markdown

if TYPE_CHECKING:
    from testbed.reports.frames import Run


def write_tensorboard(runs: Sequence[Run], out: Path) -> None:
    """Write a log folder: ``tensorboard --logdir OUT`` shows the runs overlaid.

    Raises:
        HostError: TensorBoard's library is not installed.
        TestbedError: a file of a run is damaged; then nothing is written.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise lacks("tensorboard", "tensorboard") from None
    with folder_a_run(out, runs) as fresh:
        for run in runs:
            with SummaryWriter(log_dir=str(fresh / run.name)) as writer:
                for one in scalars(run):
                    writer.add_scalar(one.name, one.value, one.step, walltime=one.time)
                yaml = run.folder.scenario.read_text(encoding="utf-8")
                writer.add_text("scenario", "".join(f"    {line}\n" for line in yaml.splitlines()))
                writer.add_text("summary", markdown(("", run.name), numbers_table([run]).rows))
