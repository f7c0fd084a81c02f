"""Options for serving metrics of an active run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from testbed.run.metering import Metering

ANY_PORT = "127.0.0.1:0"
NO_METRICS = "--metrics-per-worker and --insecure-listen need --metrics or --metrics-address."
NO_SCRAPES = (
    "A simulated run cannot be scraped; export its metrics: testbed export prometheus RUN --out "
    "FILE"
)

OPTIONS = (
    click.option("--metrics", is_flag=True, help="Serve metrics for Prometheus during the run."),
    click.option(
        "--metrics-address",
        metavar="ADDR:PORT",
        help="Serve metrics at this address; by default 127.0.0.1 and a free port.",
    ),
    click.option(
        "--metrics-per-worker",
        is_flag=True,
        help="Serve metrics of each worker even if there are more than 300 workers.",
    ),
    click.option(
        "--insecure-listen", is_flag=True, help="Allow an address that other hosts can reach."
    ),
)


@dataclass(frozen=True)
class Scrapes:
    """The requested settings for metrics."""

    host: str
    port: int
    per_worker: bool

    def metering(self) -> Metering:
        """Start to listen.

        Raises:
            HostError: the address cannot be bound.
        """
        import os

        from testbed.reports.metrics.discovery import Targets
        from testbed.reports.metrics.exporter import Exporter
        from testbed.run.metering import Metering

        targets = Targets.of_user(os.environ, Path.home())
        return Metering(Exporter(self.host, self.port), targets, self.per_worker)


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add these options to a command; it receives them as the parameter ``scrapes``."""

    @functools.wraps(command)
    def with_scrapes(
        metrics: bool,
        metrics_address: str | None,
        metrics_per_worker: bool,
        insecure_listen: bool,
        **others: Any,
    ) -> Any:
        from testbed.reports.metrics.exporter import parse_address

        scrapes = None
        address = metrics_address or (ANY_PORT if metrics else None)
        if address is not None:
            host, port = parse_address(address, insecure=insecure_listen)
            scrapes = Scrapes(host, port, metrics_per_worker)
        elif metrics_per_worker or insecure_listen:
            raise click.UsageError(NO_METRICS)
        return command(scrapes=scrapes, **others)

    decorated: Callable[..., Any] = with_scrapes
    for option in reversed(OPTIONS):
        decorated = option(decorated)
    return decorated
