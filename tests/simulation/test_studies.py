"""The studies of the ADSP paper: each once, for a few steps, with a small network on the digits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import Run
from testbed.scenario import dump
from testbed.studies import is_study, load_study

FOLDER = Path(__file__).parents[2] / "scenarios" / "adsp"
STUDIES = sorted(file.stem for file in FOLDER.glob("*.yaml") if is_study(file))
SMALL = (
    *("dataset=digits", "model={mlp: {hidden: [4]}}", "workers.batch_size=1"),
    *("stop={steps: 200}", "evaluate={every: 30s, images: 10}"),
)


def test_the_papers_figures_are_studies() -> None:
    figures = {"fig1", "fig3a", "fig3b", "fig3c", "fig4", "fig5", "fig5f", "fig6", "bandwidth"}
    assert figures <= set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_a_run_of_every_study(run_simulation: Callable[..., Run], name: str) -> None:
    """The last case's, at its own times and links; and its measures are there."""
    study = load_study(FOLDER / f"{name}.yaml")
    run = run_simulation(name, *SMALL, processes=1, text=dump(study.runs[-1].scenario))
    assert run.updates["steps"].sum() >= 200
    assert run.scenario.workers == study.runs[-1].scenario.workers.model_copy(
        update={"batch_size": 1}
    )
    for measure in study.document.report.tables["results"].measures:
        assert measure.show(measure.of(run)) != "not measured", measure
