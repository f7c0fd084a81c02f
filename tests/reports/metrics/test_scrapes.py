"""The end of a run waits for those who scrape it, and for no longer than they may take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from urllib.request import Request, urlopen

from testbed.reports.metrics.exporter import Exporter
from testbed.reports.metrics.outline import Outline
from testbed.reports.metrics.reading import MetricsSink
from testbed.reports.metrics.scrapes import SCRAPES, Scrapes

PROMETHEUS = {SCRAPES: "4", "User-Agent": "Prometheus/2.53.3"}


class Hand:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def waited(*times: float, now: float, by: dict[str, str] = PROMETHEUS) -> float:
    """How long an end at ``now`` waits in vain after scrapes at these times."""
    clock = Hand()
    scrapes = Scrapes(clock)
    for began in times:
        headers = Message()
        for name, value in by.items():
            headers[name] = value
        scrapes.add("127.0.0.1", headers, began=began)
    clock.seconds = now
    return scrapes.longest_wait()


def test_the_wait_depends_on_the_interval() -> None:
    assert waited(now=50.0) == 0.0  # nothing scrapes
    assert waited(10.0, 15.0, 20.0, now=22.0) == 5.5  # until 27.5, half an interval late
    assert waited(10.0, 15.0, 20.0, now=27.5) == 0.0  # it has ended
    assert waited(10.0, 24.0, now=25.0) == 15.0  # at 38 at the earliest, awaited until 40
    assert waited(0.0, 60.0, now=70.0) == 0.0  # the next is at 120: in vain
    assert waited(0.0, 60.0, now=110.0) == 15.0
    assert waited(10.0, now=12.0) == 15.0  # its interval is not known
    assert waited(10.0, now=25.0) == 0.0


def test_a_browser_is_not_awaited() -> None:
    assert waited(10.0, 15.0, now=16.0, by={"User-Agent": "Mozilla/5.0"}) == 0.0


@contextmanager
def exporting(outline: Outline) -> Iterator[Exporter]:
    with Exporter("127.0.0.1", 0) as exporter:
        exporter.show(MetricsSink(outline))
        exporter.start()
        yield exporter


def scrape(exporter: Exporter, agent: str = "Prometheus/2.53.3") -> None:
    request = Request(exporter.url, headers=PROMETHEUS | {"User-Agent": agent})
    with urlopen(request, timeout=20) as answer:
        answer.read()


def test_the_end_waits_for_the_next_scrape_of_each(outline: Outline) -> None:
    """One of two scrapes again; the other one has ended, and is awaited for no longer."""
    with exporting(outline) as exporter:
        for agent in ("Prometheus/2.53.3", "Prometheus/2.42.0"):
            scrape(exporter, agent)
        ended = threading.Event()

        def end() -> None:
            exporter.scrapes.await_last()
            ended.set()

        waiting = threading.Thread(target=end)
        waiting.start()
        scrape(exporter)
        assert not ended.wait(0.2)
        scrape(exporter, "Prometheus/2.42.0")
        assert ended.wait(20)
        waiting.join()


def test_an_end_that_nothing_scrapes_does_not_wait(outline: Outline) -> None:
    with exporting(outline) as exporter, urlopen(exporter.url) as answer:
        answer.read()
        assert exporter.scrapes.longest_wait() == 0.0
        exporter.scrapes.await_last()
