"""Scrapes over HTTP, and the valid addresses."""

from __future__ import annotations

import socket
from dataclasses import replace
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from testbed.errors import HostError, ScenarioError
from testbed.reports.metrics.exporter import Exporter, parse_address
from testbed.reports.metrics.outline import MOST_WORKERS, Outline
from testbed.reports.metrics.reading import MetricsSink


def answer(outline: Outline, query: str = "", **headers: str) -> tuple[str, str]:
    """The content type and the text of a scrape."""
    with Exporter("127.0.0.1", 0) as exporter:
        exporter.show(MetricsSink(outline))
        exporter.start()
        with urlopen(Request(exporter.url + query, headers=headers)) as answered:
            return answered.headers["Content-Type"], answered.read().decode()


def scrape(outline: Outline) -> list[tuple[str, dict[str, str], float]]:
    _, text = answer(outline)
    return [(one.name, one.labels, one.value) for family in parse(text) for one in family.samples]


def test_the_scraper_chooses_the_format(outline: Outline) -> None:
    kind, text = answer(outline)
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE testbed_updates_total counter\n" in text
    kind, text = answer(outline, Accept="application/openmetrics-text;version=1.0.0")
    assert kind.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert "# TYPE testbed_updates counter\n" in text
    assert text.endswith("# EOF\n")


def test_a_scrape_may_select_metrics(outline: Outline) -> None:
    _, text = answer(outline, "?name[]=testbed_version")
    labels = 'algorithm="adacomp",run="r1"'
    assert text.splitlines()[-1] == f"testbed_version{{{labels}}} 0.0"
    assert len(text.splitlines()) == 3


def test_a_scrape_has_every_sample_with_the_runs_labels(outline: Outline) -> None:
    found = scrape(outline)
    labels = {"run": "r1", "algorithm": "adacomp"}
    assert ("testbed_version", labels, 0.0) in found
    assert ("testbed_updates_total", {**labels, "class": "slow"}, 0.0) in found
    bucket = {**labels, "class": "fast", "le": "+Inf"}
    assert ("testbed_staleness_updates_bucket", bucket, 0.0) in found
    assert ("testbed_worker_state", {**labels, "worker": "w2", "class": "slow"}, 0.0) in found


def test_two_hundred_workers_take_less_than_6000_samples(outline: Outline) -> None:
    classes = ("fast",) * 100 + ("medium",) * 60 + ("slow",) * 40
    found = scrape(replace(outline, classes=classes))
    # 7 per worker and some 100 more; queues and containers add 2 per node and 6 per class.
    assert 7 * 200 < len(found) < 6000 - 2 * 203 - 6 * 4


def test_without_samples_per_worker_there_are_only_classes(outline: Outline) -> None:
    many = replace(outline, classes=("fast",) * (MOST_WORKERS + 1), per_worker=False)
    found = scrape(many)
    assert len(found) < 100
    assert not any("worker" in labels for _, labels, _ in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9500", ("::1", 9500))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text, insecure=False) == expected


@pytest.mark.parametrize("text", ["9500", "127.0.0.1", "127.0.0.1:65536", "here:9500", "::1:x", ""])
def test_no_address(text: str) -> None:
    with pytest.raises(ScenarioError, match="expected an address and a port, like 127"):
        parse_address(text, insecure=True)


def test_a_public_address_needs_an_explicit_option() -> None:
    with pytest.raises(ScenarioError, match=r"found 0.0.0.0.*--insecure-listen"):
        parse_address("0.0.0.0:9500", insecure=False)
    assert parse_address("0.0.0.0:9500", insecure=True) == ("0.0.0.0", 9500)


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HostError, match=rf"127.0.0.1:{port}: Address already in use") as caught:
            Exporter("127.0.0.1", port)
    assert "--metrics-address" in caught.value.hint


def test_close_is_idempotent_and_needs_no_start() -> None:
    exporter = Exporter("127.0.0.1", 0)
    exporter.close()
    exporter.close()
