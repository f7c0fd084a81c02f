from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed.reports.figures import against_ingress
from testbed.reports.frames import Run
from testbed.telemetry.folder import RunFolder


def test_the_figure_shows_the_evaluations(folder: RunFolder) -> None:
    run = Run(folder.path)
    axes = against_ingress(run.evaluations, run.scenario, run.summary).axes[0]
    single, last = axes.lines
    assert list(single.get_xdata()) == [2.0, 4.0, 6.0]  # KB: 6,000 bytes at most
    assert list(single.get_ydata()) == [25.0, 75.0, 50.0]
    assert (list(last.get_xdata()), list(last.get_ydata())) == ([6.0], [62.5])
    assert "(KB)" in axes.get_xlabel()
    assert "(%)" in axes.get_ylabel()


def test_a_mean_of_ten_starts_at_the_tenth_evaluation(folder: RunFolder) -> None:
    run = Run(folder.path)
    many = pd.concat([run.evaluations.iloc[:3]] * 4, ignore_index=True)  # 25, 75 and 50 %
    many["version"] = range(1, 13)  # an evaluation was due at each
    _, smooth = against_ingress(many, run.scenario, run.summary).axes[0].lines
    values = smooth.get_ydata()
    assert np.isnan(values[:9]).all()
    assert list(values[9:]) == pytest.approx([47.5, 52.5, 50.0])
    few = against_ingress(many.head(9), run.scenario, run.summary).axes[0]
    assert [text.get_text() for text in few.get_legend().get_texts()] == ["one evaluation"]


def test_a_mean_of_ten_is_of_scheduled_evaluations(folder: RunFolder) -> None:
    """Of 24 evaluations every second one was due: 25, 50, 75, 25, ... %."""
    run = Run(folder.path)
    many = pd.concat([run.evaluations.iloc[:3]] * 8, ignore_index=True)  # 25, 75 and 50 %
    many["version"] = many.index // 2
    single, smooth = against_ingress(many, run.scenario, run.summary).axes[0].lines
    assert (len(single.get_ydata()), len(smooth.get_ydata())) == (24, 12)
    assert list(smooth.get_ydata()[9:]) == pytest.approx([47.5, 50.0, 52.5])


def test_the_loss_without_an_accuracy(folder: RunFolder) -> None:
    run = Run(folder.path)
    replaced = {**run.summary, "substitutes": ["a formula stands for data"]}
    figure = against_ingress(run.evaluations, run.scenario, replaced, "loss")
    single, last = figure.axes[0].lines
    during = run.evaluations[~run.evaluations["final"]]
    assert list(single.get_ydata()) == list(during["loss"])
    assert "%" not in str(last.get_label())
    assert figure.axes[0].get_ylabel() == "loss"
    assert any("SUBSTITUTE" in text.get_text() for text in figure.texts)


def test_the_figure_uses_no_global_state(folder: RunFolder) -> None:
    run = Run(folder.path)
    against_ingress(run.evaluations, run.scenario, run.summary)
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"verdict": {"valid": True}}, "tiny"),
        ({}, "tiny (not valid)"),
        ({"runtime": "simulated", "verdict": {"valid": True}}, "tiny (simulated)"),
        ({"state": "training", "ended": None}, "tiny (not finished, not valid)"),
        ({"state": "interrupted"}, "tiny (interrupted, not valid)"),
    ],
)
def test_title_and_caption_describe_the_figure(
    folder: RunFolder, changes: dict[str, Any], title: str
) -> None:
    run = Run(folder.path)
    figure = against_ingress(run.evaluations, run.scenario, {**run.summary, **changes})
    words = [text.get_text().replace("\n", " ") for text in figure.texts]
    assert words[0] == title
    assert words[1].startswith("adacomp (")
    assert words[1].endswith("4 workers, think uniform(0.5,1.5) x 0.1 s, 6 updates")


def test_one_evaluation_without_any_ingress(folder: RunFolder) -> None:
    run = Run(folder.path)
    first = run.evaluations.head(1).assign(payload_up_bytes=0)
    figure = against_ingress(first, run.scenario, run.summary)
    assert "(B)" in figure.axes[0].get_xlabel()
    figure.canvas.print_png("/dev/null")
