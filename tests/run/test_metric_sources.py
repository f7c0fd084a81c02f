"""Values of metrics in lines of JSON and in replies of Prometheus endpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.run.metric_values import MetricValues
from testbed.run.output import json_of, printed_value
from testbed.run.scraping import Scraper, UnreadableError, value_of
from testbed.runtimes.agent.scrapes import Endpoint, Scraped
from testbed.scenario.load_workload import load_workload
from testbed.scenario.workload_metrics import Metric
from testbed.scenario.workload_names import workload_timeline
from testbed.telemetry.record import Recorder

FAULTY = """\
name: faulty
workload:
  one: {command: [work], metrics: {loss: {regex: "loss (.+)", better: %s}}}
stop: {time: 1s, metrics: {loss: 3}}
faults: [{freeze: {nodes: [one], at: {loss: 2}, for: 1s}}]
"""
SERVED = """\
name: served
workload:
  one: {command: [work], count: 2, metrics: {x: {prometheus: x, port: 80, every: 2s}}}
stop: {metrics: {x: 4}}
"""
BODY = """\
# HELP loss Of a step.
# TYPE loss gauge
loss{set="test",fold="1"} 0.25
loss{set="train"} 0.5
loss_total 7
steps 12
broken{ 1
wide{} not-a-number
"""
REPLY = f"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{BODY}"


def served(**fields: Any) -> Metric:
    return Metric(port=9100, **fields)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"eval": {"acc": 0.5}}', 0.5),
        ('  {"eval.acc": 3, "eval": {"acc": 0.5}}', 3.0),
        ('{"eval": {"acc": true}}', None),
        ('{"eval": {"acc": "0.5"}}', None),
        ('{"eval": [0.5]}', None),
        ('{"acc": 0.5}', None),
        ('{"eval": {"acc": ' + "9" * 400 + "}}", None),
        ('{"eval": ' + "[" * 100_000, None),
        ('[{"eval.acc": 1}]', None),
        ("eval.acc 0.5", None),
    ],
)
def test_a_number_in_a_line_of_json(line: str, value: float | None) -> None:
    metric = Metric.model_validate({"json": "eval.acc"})
    assert printed_value(metric, line, json_of(line)) == value


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (served(prometheus="steps"), 12.0),
        (served(prometheus="loss_total"), 7.0),
        (served(prometheus="loss", labels={"set": "test"}), 0.25),
        (served(prometheus="loss", labels={"set": "train"}), 0.5),
    ],
)
def test_a_sample_of_an_endpoint(metric: Metric, value: float) -> None:
    assert value_of(metric, REPLY) == value


@pytest.mark.parametrize(
    ("metric", "reply", "reason"),
    [
        (served(prometheus="loss"), REPLY, "several samples loss: say in `labels` which is meant"),
        (served(prometheus="los"), REPLY, "it serves no sample los"),
        (served(prometheus="broken"), REPLY, "it serves no sample broken"),
        (served(prometheus="wide"), REPLY, "it serves no sample wide"),
        (served(prometheus="a"), "HTTP/1.0 404 No\r\n\r\na 1", "it answered with HTTP status 404"),
        (served(prometheus="a"), "SSH-2.0-OpenSSH\r\n", "its answer is not HTTP"),
        (served(prometheus="a"), "", "its answer is not HTTP"),
        (
            served(prometheus="a"),
            "HTTP/1.0 200 OK\r\n\r\na{" + 'b="",' * 50_000 + "} 1\n",
            "it serves no sample a",
        ),
    ],
)
def test_a_reply_without_the_sample(metric: Metric, reply: str, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        value_of(metric, reply)


@pytest.mark.parametrize(("better", "reached"), [("lower", 1.0), ("higher", 3.0)])
def test_a_metric_triggers_a_fault(tmp_path: Path, better: str, reached: float) -> None:
    """Which values are better is the scenario's to say, also of a loss."""
    file = tmp_path / "one.yaml"
    file.write_text(FAULTY % better)
    workload = load_workload(file)
    timeline = workload_timeline(workload)
    values = MetricValues(workload, Recorder([], time_scale=1.0), timeline)
    for value in (4 - reached, nan, inf):
        values.take("one", "loss", value)
        assert timeline.next_time == inf
    values.take("one", "loss", reached)
    (action, *_) = timeline.due(0.0)
    assert timeline.named(action.workers) == ("one",)
    assert values.reached.startswith("loss of one has reached 3")


@dataclass
class Agent:
    """Answers every request at the next call, but none of a node that has ended."""

    nodes: list[str]
    asked: list[list[str]] = field(default_factory=list)
    _begun: list[Endpoint] = field(default_factory=list)

    def running(self) -> list[str]:
        return self.nodes

    def scrape(self, wanted: list[Endpoint]) -> list[Scraped]:
        self.asked.append([one.node for one in wanted])
        done, self._begun = self._begun, wanted
        reply = "HTTP/1.0 200 OK\r\n\r\nx 4\n"
        return [Scraped(one, reply) for one in done if one.node in self.nodes]


def test_endpoints_are_read_in_their_interval_also_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(SERVED)
    workload, now, agent = load_workload(file), [0.0], Agent(["one0", "one1"])
    values = MetricValues(workload, Recorder([], time_scale=1.0), workload_timeline(workload))
    scraper = Scraper(workload, cast(Any, agent), values, lambda: now[0])
    for at, nodes in (
        *((0.0, ["one0", "one1"]), (0.1, ["one0"]), (0.2, ["one0"]), (2.1, ["one0", "one1"])),
    ):
        now[0], agent.nodes = at, nodes
        scraper.look()
    assert agent.asked == [["one0", "one1"], [], ["one0", "one1"]]
    assert values.reached == "x of one0 has reached 4: 4"
