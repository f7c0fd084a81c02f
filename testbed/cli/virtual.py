"""``testbed up`` for a scenario with ``runtime: simulated``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.orchestrator.prepare import Request

INVALID = 6


def run_simulation(request: Request) -> int:
    """Simulate the scenario into a run folder of its own; returns the exit status.

    Raises:
        TestbedError: the run could not be begun, or failed; its folder says so too.
    """
    from rich.console import Console

    from testbed.cli.live import LiveDisplay
    from testbed.cli.report import print_report
    from testbed.experiment import Experiment
    from testbed.orchestrator.interrupts import Interrupts
    from testbed.orchestrator.prepare import prepare_data, prepare_simulation
    from testbed.reports.remake import remake
    from testbed.simulate.agenda import Agenda
    from testbed.simulate.run import record_simulation

    display = LiveDisplay(Console())
    with Interrupts() as interrupts, interrupts.allowed():
        data = prepare_data(request)
        folder = prepare_simulation(request)
        display.phase(f"run {folder.name} (simulated)")
        try:
            experiment = Experiment.open(folder.path, data=data)
            record_simulation(experiment, folder, agenda=Agenda(), observer=display)
        finally:
            report = remake(folder.path)
            display.close()
            print_report(report, folder=folder.path)
    return 0 if report.summary["verdict"]["valid"] else INVALID
