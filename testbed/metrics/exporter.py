"""Answers scrapes: one for a whole run, in the process that controls it."""

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
from testbed.metrics.reading import MetricsSink

OPTION = "--metrics-address"
EXPECTED = "an address and a port, like 127.0.0.1:9500, or port 0 for any that is free"
LARGEST_PORT = 65535
LOOK_SECONDS = 0.1
"""How often it looks whether it is to end."""


def parse_address(text: str, *, insecure: bool) -> tuple[str, int]:
    """The host and port that scrapes are to be answered at.

    Args:
        text: as ``--metrics-address`` takes it; an IPv6 address stands in brackets.
        insecure: whether others than this host may reach it: nobody is asked who they are.

    Raises:
        ScenarioError: it is no address, or not one of this host's own without ``insecure``.
    """
    host, _, port = text.rpartition(":")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        if not port.isascii() or not port.isdecimal() or int(port) > LARGEST_PORT:
            raise ValueError(port)
    except ValueError:
        raise ScenarioError([Problem(OPTION, 0, "", repr(text), EXPECTED)]) from None
    if not (address.is_loopback or insecure):
        hint = "Anyone who reaches it may read the metrics: add --insecure-listen if that is meant."
        wanted = "an address of the loopback, like 127.0.0.1"
        raise ScenarioError([Problem(OPTION, 0, "", str(address), wanted, hint)])
    return str(address), int(port)


class Exporter:
    """Listens from the beginning, answers from ``start`` to ``close``.

    Args:
        host: address to listen at.
        port: 0 for any that is free.

    Raises:
        HostError: nothing can listen there.
    """

    def __init__(self, host: str, port: int) -> None:
        self._registry = CollectorRegistry()

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
        self.sink: MetricsSink | None = None
        self._thread: threading.Thread | None = None

    @property
    def target(self) -> str:
        """Its address and port, as Prometheus names it."""
        host, port = self._server.server_address[:2]
        text = str(host)
        return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"

    @property
    def url(self) -> str:
        """Where a scrape goes."""
        return f"http://{self.target}/metrics"

    def show(self, sink: MetricsSink) -> None:
        """Answer with this sink's samples; no thread runs before ``start``."""
        self.sink = sink
        self._registry.register(sink)

    def start(self) -> None:
        """Answer scrapes in a thread of its own from now on."""
        serve = partial(self._server.serve_forever, LOOK_SECONDS)
        self._thread = threading.Thread(target=serve, name="exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more; doing it twice is harmless."""
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
    """Answers every scrape in a thread of its own."""

    def __init__(self, host: str, port: int, handler: type[_Scrape]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that hangs up before it has its answer is nothing to tell of."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Scrape(MetricsHandler):
    """One scrape, whose CPU time is among the metrics."""

    exporter: Exporter

    def do_GET(self) -> None:  # noqa: N802 - the base class's name
        """Answer with all metrics, in the text format that is asked for."""
        assert self.exporter.sink is not None
        del self.headers["Accept-Encoding"]  # loopback gains nothing by compression
        with self.exporter.sink.spending():
            super().do_GET()
