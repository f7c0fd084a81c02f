"""Reads the metrics that programs of a workload serve, in Prometheus' text format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from testbed.run.metric_values import MetricValues
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.scrapes import Endpoint
from testbed.scenario.workload import Workload
from testbed.scenario.workload_metrics import Metric
from testbed.scenario.workload_names import placed, port_of

LONGEST_LINE = 2**12
"""Longer lines are skipped: the parser's time grows with the square of the number of labels."""


class UnreadableError(ValueError):
    """A reply without the value of a metric."""


@dataclass
class Scraper:
    """Has the agent read each endpoint as often as the scenario wants it, and takes the values."""

    workload: Workload
    agent: AgentClient
    values: MetricValues
    clock: Callable[[], float]  # monotonic seconds
    _metrics: dict[Endpoint, dict[str, Metric]] = field(default_factory=dict)
    _begun: dict[Endpoint, float] = field(default_factory=dict)  # when last
    _awaited: set[Endpoint] = field(default_factory=set)

    def __post_init__(self) -> None:
        found: dict[Endpoint, dict[str, Metric]] = defaultdict(dict)
        for one in placed(self.workload):
            program = self.workload.workload[one.program]
            for name, metric in program.metrics.items():
                if metric.port is not None:
                    endpoint = Endpoint(one.name, port_of(program, metric.port))
                    found[endpoint][name] = metric
        self._metrics = dict(found)

    def look(self) -> None:
        """Take the replies that have come, and request those that are due."""
        now = self.clock()
        wanted = [
            one
            for one, metrics in self._metrics.items()
            if now - self._begun.get(one, -1e9) >= min(float(m.every) for m in metrics.values())
        ]
        if not wanted and not self._awaited:
            return
        running = set(self.agent.running())
        # The reply of a node that has just ended may never come, and it may start again.
        self._awaited = {one for one in self._awaited if one.node in running}
        due = [one for one in wanted if one.node in running and one not in self._awaited]
        if not due and not self._awaited:
            return
        self._begun.update(dict.fromkeys(due, now))
        self._awaited.update(due)
        for found in self.agent.scrape(due):
            self._awaited.discard(found.endpoint)
            for name, metric in self._metrics[found.endpoint].items():
                node = found.endpoint.node
                try:
                    if found.failure:
                        raise UnreadableError(found.failure)
                    self.values.take(node, name, value_of(metric, found.reply))
                except UnreadableError as error:
                    self.values.miss(node, name, str(error))


def value_of(metric: Metric, reply: str) -> float:
    """Return the value of a metric in an HTTP reply.

    Raises:
        UnreadableError: it has none, or several.
    """
    head, _, body = reply.partition("\r\n\r\n")
    words = head.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith("HTTP/"):
        raise UnreadableError("its answer is not HTTP")
    if words[1] != "200":
        raise UnreadableError(f"it answered with HTTP status {words[1][:3]}")
    assert metric.prometheus is not None, "only such metrics are read here"
    values = [
        value
        for labels, value in _samples(metric.prometheus, body)
        if metric.labels.items() <= labels.items()
    ]
    if not values:
        wanted = f" with labels {dict(metric.labels)}" if metric.labels else ""
        raise UnreadableError(f"it serves no sample {metric.prometheus}{wanted}")
    if len(values) > 1:
        raise UnreadableError(
            f"it serves several samples {metric.prometheus}: say in `labels` which is meant"
        )
    return values[0]


def _samples(name: str, body: str) -> Iterator[tuple[dict[str, str], float]]:
    """Yield labels and value of each sample of a name; lines that cannot be read are skipped."""
    for line in body.splitlines():
        if not line.startswith(name) or len(line) > LONGEST_LINE:
            continue
        try:
            families = list(text_string_to_metric_families(line))
        except (ValueError, IndexError, KeyError):
            continue
        for sample in (one for family in families for one in family.samples):
            if sample.name == name:
                yield dict(sample.labels), float(sample.value)
