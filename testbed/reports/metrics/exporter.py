"""The HTTP server for scrapes: one per run, in the controller process."""

from __future__ import annotations

import os
import socket
import sys
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from testbed.errors import HostError, Problem, ScenarioError
from testbed.reports.metrics.scraped import ScrapedSink
from testbed.reports.metrics.scrapes import Scrapes

OPTION = "--metrics-address"
EXPECTED = "an address and a port, like 127.0.0.1:9500; port 0 for any free port"
LARGEST_PORT = 65535
LOOK_SECONDS = 0.1
"""Interval at which the server thread checks for shutdown."""


def parse_address(text: str, *, insecure: bool) -> tuple[str, int]:
    """Return the host and port to serve scrapes at.

    Args:
        text: the value of ``--metrics-address``; an IPv6 address is in brackets.
        insecure: whether other hosts may connect: scrapes are not authenticated.

    Raises:
        ScenarioError: not a valid address, or not a local one without ``insecure``.
    """
    host, _, port = text.rpartition(":")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        if not port.isascii() or not port.isdecimal() or int(port) > LARGEST_PORT:
            raise ValueError(port)
    except ValueError:
        raise ScenarioError([Problem(OPTION, 0, "", repr(text), EXPECTED)]) from None
    if not (address.is_loopback or insecure):
        hint = (
            "Any host that reaches this address can read the metrics: add --insecure-listen to "
            "allow that."
        )
        wanted = "a loopback address, like 127.0.0.1"
        raise ScenarioError([Problem(OPTION, 0, "", str(address), wanted, hint)])
    return str(address), int(port)


class Exporter:
    """Listens from its creation on, and answers between ``start`` and ``close``.

    Args:
        host: address to listen at.
        port: 0 for any free port.

    Raises:
        HostError: the address cannot be bound.
    """

    def __init__(self, host: str, port: int) -> None:
        self._registry = CollectorRegistry()
        self.scrapes = Scrapes()

        class Scrape(_Scrape):
            exporter = self
            registry = self._registry

        try:
            self._server = _Server(host, port, Scrape)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise HostError(
                f"metrics cannot be served at {host}:{port}: {why}.",
                hint=f"Choose another port with {OPTION}, or --metrics alone for a free one.",
            ) from None
        self.sink: ScrapedSink | None = None
        self._thread: threading.Thread | None = None

    @property
    def target(self) -> str:
        """Address and port, in Prometheus's notation."""
        host, port = self._server.server_address[:2]
        text = str(host)
        return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"

    @property
    def url(self) -> str:
        """URL to scrape."""
        return f"http://{self.target}/metrics"

    def show(self, sink: ScrapedSink) -> None:
        """Serve this sink's samples; no thread runs before ``start``."""
        self.sink = sink
        self._registry.register(sink)

    def start(self) -> None:
        """Start answering scrapes, in a separate thread."""
        serve = partial(self._server.serve_forever, LOOK_SECONDS)
        self._thread = threading.Thread(target=serve, name="exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Idempotent."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()

    def __enter__(self) -> Exporter:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    """Answers every scrape in a separate thread."""

    def __init__(self, host: str, port: int, handler: type[_Scrape]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a scraper that disconnects before it has its response."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Scrape(MetricsHandler):
    """One scrape. Its CPU time is one of the metrics."""

    exporter: Exporter

    def do_GET(self) -> None:  # noqa: N802 - the base class's name
        """Respond with all metrics, in the requested text format."""
        assert self.exporter.sink is not None
        del self.headers["Accept-Encoding"]  # compression gains nothing on loopback
        scrapes = self.exporter.scrapes
        began = scrapes.clock()
        with self.exporter.sink.spending():
            super().do_GET()
        scrapes.add(self.client_address[0], self.headers, began=began)
