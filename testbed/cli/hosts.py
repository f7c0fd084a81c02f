"""``testbed hosts``: lists the hosts of the Docker Swarm, and what each lacks."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from testbed.cli.options import json_option, print_json, print_table

if TYPE_CHECKING:
    from testbed.runtimes.docker.swarm import SwarmHost


@click.command("hosts")
@json_option
def command(as_json: bool) -> None:
    """List the hosts of the Docker Swarm that this host manages, and what each of them lacks.

    The Swarm says which hosts there are; their engines are asked for what they have. The first is
    this host.
    """
    from testbed.host.requirements import require_linux
    from testbed.runtimes.docker.swarm import find_hosts

    require_linux("hosts")
    hosts = find_hosts()
    if as_json:
        print_json([asdict(host) for host in hosts])
        return
    columns = ("host", "address", "CPUs", "GB", "labels", "availability", "engine", "image")
    print_table(columns, map(_row, hosts))
    for host in hosts:
        if host.left_out:
            told = "a run needs this host" if host.here else "runs leave it out"
            click.echo(f"{host.name}: {told}: {host.left_out}")
        for lack in host.lacks:
            click.echo(f"{host.name}: {lack}")


def _row(host: SwarmHost) -> tuple[str, ...]:
    labels = " ".join(f"{name}={text}" if text else name for name, text in host.labels.items())
    return (
        f"{host.name} (this host)" if host.here else host.name,
        host.address,
        f"{host.cpus:g}",
        f"{host.memory_bytes / 1e9:.1f}",
        labels or "none",
        host.availability if host.state == "ready" else host.state,
        host.version,
        host.image or ("none" if host.image_store else "unknown"),
    )
