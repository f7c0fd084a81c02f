"""Studies of workloads: measures worked out by hand, and what a report can show."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan
from pathlib import Path

import pytest
from recorded_workloads import record_workload

from testbed.errors import ScenarioError
from testbed.reports.compare import compare
from testbed.reports.run_measure import Measure
from testbed.reports.workload import WorkloadRun
from testbed.studies import Study, load_study
from testbed.studies.found import find_runs
from testbed.telemetry.event_kinds import StateChanged, WorkloadBegun, WorkloadEnded
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import NodeRow

WORKLOAD = """\
name: pair
workload:
  server: {command: [serve]}
  client:
    command: [ask]
    count: 2
    environment: {WAIT: "1"}
    metrics:
      accuracy: {regex: "a=(.+)"}
      loss: {json: loss, better: lower}
      errors: {regex: "e=(.+)", better: lower}
"""
STUDY = """\
name: waits
scenario: pair.yaml
vary:
  wait:
    short: workload.client.environment.WAIT="1"
    long: workload.client.environment.WAIT="2"
"""


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Study]:
    (tmp_path / "pair.yaml").write_text(WORKLOAD)
    file = tmp_path / "study.yaml"

    def made(more: str = "", scale: float = 1.0) -> Study:
        file.write_text(STUDY + more)
        return load_study(file, scale=scale)

    return made


def recorded(runs: Path, name: str = "waits-short-s0", text: str = WORKLOAD) -> WorkloadRun:
    """A run with readings at 1 s and 3 s, and values of two nodes."""

    def write(recorder: Recorder, now: list[float]) -> None:
        recorder.event(WorkloadBegun())
        for seconds, sent in ((1.0, 100), (3.0, 500)):
            now[0] = 100.0 + seconds
            rest = (5, 50, 4, 7, 2, None, 1000)
            rows = [NodeRow(seconds, node, sent, *rest) for node in ("server", "client0")]
            recorder.readings(rows)
            recorder.metric("client0", "accuracy", seconds / 10)
            recorder.metric("client1", "loss", 4.0 - seconds)
            now[0] += 1.0
            recorder.metric("client1", "accuracy", 0.5 - seconds / 10)
        recorder.event(WorkloadEnded("all final programs have ended with status 0"))
        recorder.event(StateChanged("finished"))

    return record_workload(runs, name, text, write)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("time", 4.0),
        ("sent", 1000.0),
        ("sent(server)", 500.0),
        ("received(client0)", 50.0),
        ("retransmitted", 14.0),
        ("dropped", 4.0),
        ("memory", 1000.0),
        # accuracies: 0.1 at 1 s, 0.4 at 2 s, 0.3 at 3 s, 0.2 at 4 s
        ("best_accuracy", 0.4),
        ("last_accuracy", 0.2),
        ("best_accuracy(2)", 0.35),
        ("time_to(0.35)", 2.0),
        ("sent_to(0.35)", 600.0),  # in the middle between 200 and 1,000 bytes
        ("time_to(0.9)", inf),
        ("lowest_loss", 1.0),
        ("last_loss", 1.0),
        ("time_to_loss(2)", 3.0),
    ],
)
def test_measures_by_hand(tmp_path: Path, text: str, value: float) -> None:
    measure = Measure.parse(text)
    assert str(measure) == text
    assert measure.of(recorded(tmp_path)) == pytest.approx(value)


def test_what_was_not_measured_is_no_number(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    for text in ("cpu", "best_errors", "updates", "final_accuracy", "updates_to(0.1)"):
        assert isnan(Measure.parse(text).of(run)), text


def test_runs_are_compared(tmp_path: Path) -> None:
    pair = [recorded(tmp_path, name) for name in ("one", "two")]
    found = {one.measure: (one.first, one.second, one.ratio) for one in compare(*pair)}
    assert found["bytes sent"] == (1000.0, 1000.0, 0.0)
    assert found["best accuracy"] == (0.4, 0.4, 0.0)
    assert "best errors" not in found


def test_a_study_has_a_report_of_workloads_by_default(study: Callable[..., Study]) -> None:
    made = study()
    assert [str(measure) for measure in made.tables["results"].measures] == [
        *("time", "sent", "best_accuracy", "last_accuracy", "lowest_loss", "last_loss"),
        *("best_errors", "last_errors"),
    ]
    shown = {name: (one.show, one.against) for name, one in made.figures.items()}
    assert shown == {name: (name, "time") for name in ("accuracy", "loss", "errors")}


def test_a_run_of_the_study_is_found_again(study: Callable[..., Study], tmp_path: Path) -> None:
    recorded(tmp_path / "runs", "any-name", WORKLOAD.replace('"1"', '"2"'))
    made = study()
    found = find_runs(made, tmp_path / "runs")
    assert [(run.case.name, one.name) for run, one in found.items()] == [("long", "any-name")]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            "report: {tables: {t: {measures: [time, updates]}}}",
            "updates, which no workload has, expected a measure of a workload: time, sent,",
        ),
        (
            "report: {tables: {t: {measures: [sent(client7)]}}}",
            "found client7, expected a node: client0, client1, server",
        ),
        (
            "report: {figures: {f: {show: accuracy, against: updates}}}",
            "found updates, expected time or sent",
        ),
        (
            "report: {figures: {f: {show: f1}}}",
            "f1, which is not evaluated, expected a metric of a program: accuracy, loss, errors",
        ),
        (
            "expects: {e: {measure: best_f1, source: x, order: [{wait: short}, {wait: long}]}}",
            "f1, which is not evaluated",
        ),
    ],
)
def test_what_workloads_do_not_have(study: Callable[..., Study], more: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        study(more)
    assert expected in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_programs_determine_the_length_of_a_workload(study: Callable[..., Study]) -> None:
    with pytest.raises(ScenarioError, match=r"a scale of 0\.5 of a workload without stop\.time"):
        study(scale=0.5)


def test_trainings_have_no_measures_of_workloads(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        "name: s\nscenario: {extends: quickstart, name: q}\nseeds: [1, 2]\n"
        'report: {tables: {t: {measures: [sent, "sent_to(0.9)"]}}}\n'
    )
    with pytest.raises(ScenarioError) as refused:
        load_study(file)
    assert str(refused.value).count("which no training has") == 2
