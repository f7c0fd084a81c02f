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


def waits(*times: float, now: float, until: float, by: dict[str, str] = PROMETHEUS) -> bool:
    """Whether an end at ``now`` waits in vain after scrapes at these times, and no longer.

    It reads the clock when it begins, and whenever it has waited for what it then had left.
    """
    readings = [now, until] if until == now else [now, until - 0.001, until]
    scrapes = Scrapes(lambda: readings.pop(0))
    for began in times:
        headers = Message()
        for name, value in by.items():
            headers[name] = value
        scrapes.add("127.0.0.1", headers, began=began)
    scrapes.await_last()
    return readings == []


def test_the_wait_depends_on_the_interval() -> None:
    assert waits(now=50.0, until=50.0)  # nothing scrapes
    assert waits(10.0, 15.0, 20.0, now=22.0, until=27.5)  # half an interval late
    assert waits(10.0, 15.0, 20.0, now=27.5, until=27.5)  # it has ended
    assert waits(10.0, 24.0, now=25.0, until=40.0)  # at 38 at the earliest
    assert waits(0.0, 60.0, now=70.0, until=70.0)  # the next is at 120: in vain
    assert waits(0.0, 60.0, now=110.0, until=125.0)
    assert waits(10.0, now=12.0, until=27.0)  # its interval is not known
    assert waits(10.0, now=25.0, until=25.0)


def test_a_browser_is_not_awaited() -> None:
    assert waits(10.0, 15.0, now=16.0, until=16.0, by={"User-Agent": "Mozilla/5.0"})


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
        exporter.scrapes.await_last()
