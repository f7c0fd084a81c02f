"""The studies of three papers: each for a few steps, with a small network on the digits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import Run
from testbed.models import AdspCnn
from testbed.runtimes import Simulated
from testbed.scenario import dump
from testbed.scenario.source import shipped_studies
from testbed.studies import load_study

SCENARIOS = Path(__file__).parents[2] / "scenarios"
STUDIES = [
    (paper, file.stem)
    for paper in ("adsp", "scadles", "slim_dp")
    for file in sorted(shipped_studies().values())
    if file.parent == SCENARIOS / paper
]
SMALL = (
    *("dataset=digits", "model={mlp: {hidden: [4]}}", "workers.batch_size=1"),
    *("stop={steps: 200}", "evaluate={every: 30s, images: 10}"),
)


def test_the_papers_figures_are_studies() -> None:
    adsp = {"fig1", "fig3a", "fig3b", "fig3c", "fig4", "fig5", "fig5f", "fig6", "bandwidth"}
    assert {("adsp", name) for name in adsp} <= set(STUDIES)
    tables = {"table1", "table2", "table4", "table5", "table6"}
    scadles = tables | {"fig1", "fig2", "fig4a", "fig6", "fig7", "fig8", "fig9"}
    assert {("scadles", name) for name in scadles} <= set(STUDIES)
    slim_dp = {"table1", "table1-cifar10", "fig2", "fig3", "fig4", "fig5", "live"}
    assert {("slim_dp", name) for name in slim_dp} <= set(STUDIES)


def test_figure_4_exists_at_the_papers_size() -> None:
    """Its runs equal those of the small one except for network, batches, rates and length."""
    small, full = (load_study(SCENARIOS / part / "fig4.yaml") for part in ("adsp", "adsp_full"))
    assert [run.case for run in full.runs] == [run.case for run in small.runs]
    for one, other in zip(small.runs, full.runs, strict=True):
        assert other.scenario.runtime == Simulated(name="simulated", device="cuda")
        assert other.scenario.model == AdspCnn(name="adsp-cnn")
        assert other.scenario.workers.batch_size == 128
        speeds = [
            [member.speed for member in run.scenario.workers.classes.values()]
            for run in (one, other)
        ]
        assert speeds[0] == speeds[1]


@pytest.mark.parametrize(("paper", "name"), STUDIES)
def test_a_run_of_every_study(run_simulation: Callable[..., Run], paper: str, name: str) -> None:
    """The last case, with its own times, links and rates; all its measures exist."""
    study = load_study(SCENARIOS / paper / f"{name}.yaml")
    run = run_simulation(name, *SMALL, processes=1, text=dump(study.runs[-1].scenario))
    assert run.updates["steps"].sum() >= 200
    assert run.scenario.workers == study.runs[-1].scenario.workers.model_copy(
        update={"batch_size": 1}
    )
    for measure in study.document.report.tables["results"].measures:
        assert measure.show(measure.of(run)) != "not measured", measure
