"""``testbed image``: builds, checks, lists and removes the Docker image for nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from testbed.cli.options import json_option, print_json

if TYPE_CHECKING:
    from docker import APIClient
    from testbed.runtimes.docker.image import OwnImage

gpu_option = click.option(
    "--gpu", is_flag=True, help="Use the image with a torch that supports NVIDIA GPUs."
)


@click.group("image")
def command() -> None:
    """Build, check, list and remove the image that Docker runs nodes in."""


@command.command("build")
@gpu_option
@click.option(
    "--base", default="", metavar="IMAGE", help="Base image; it must have python3 with pip."
)
@click.option(
    "--offline", is_flag=True, help="Use no registry: create the base image with mmdebstrap."
)
@click.option("--kafka", is_flag=True, help="Build the image of the streams' Kafka broker instead.")
@click.option("--verbose", is_flag=True, help="Show the output of the engine.")
def build(gpu: bool, base: str, offline: bool, kafka: bool, verbose: bool) -> None:
    """Build the image for this version of testbed, and print its name.

    By default the image is based on a Python image from a registry, with packages installed by pip.
    If no registry answers, mmdebstrap creates the base image and pip downloads the packages on this
    host, which needs access to package mirrors only; with --gpu they are gigabytes. With --kafka,
    the broker's image is pulled, or created from the jars in the folder $TESTBED_KAFKA. An engine
    executes one build at a time.
    """
    import os

    from testbed.run.interrupts import Interrupts
    from testbed.runtimes.docker.build import Builder, one_build

    if kafka and (gpu or base):
        raise click.UsageError("--kafka cannot be combined with --gpu or --base.")
    if offline and base:
        raise click.UsageError("--offline cannot be combined with --base.")

    def say(line: str) -> None:
        click.echo(line, err=True)

    def log(line: str) -> None:
        if verbose:
            click.echo(f"  {line}", err=True)

    with Interrupts() as interrupts, interrupts.allowed(), _engine() as engine, one_build(say):
        builder = Builder(engine, offline, say, log)
        click.echo(builder.kafka(os.environ) if kafka else builder.nodes(gpu=gpu, base=base))


@command.command("check")
@gpu_option
def check(gpu: bool) -> None:
    """Print the name of this version's image; exit with 3 if the image does not exist."""
    from testbed.runtimes.docker.image import check_image

    with _engine() as engine:
        click.echo(check_image(engine, gpu=gpu))


@command.command("show")
@json_option
def show(as_json: bool) -> None:
    """List the engine's images of testbed, current and old ones."""
    from dataclasses import asdict

    from testbed.runtimes.docker.image import current_images, list_images

    is_current = current_images()
    with _engine() as engine:
        images = list_images(engine)
    if as_json:
        print_json([{**asdict(image), "current": is_current(image)} for image in images])
    elif images:
        _print(images, is_current)
    else:
        click.echo("No images found. To build one: testbed image build")


@command.command("prune")
@click.option("--hosts", is_flag=True, help="On the other hosts of the Docker Swarm, too.")
def prune(hosts: bool) -> None:
    """Remove what no run of this version of testbed needs, unless a container uses it.

    These are the images of other versions, and the copies of data sets of other hosts, which their
    next run copies again.
    """
    from testbed.errors import HostError
    from testbed.runtimes.docker.engine import connect
    from testbed.runtimes.docker.remote import naming
    from testbed.runtimes.docker.swarm import find_hosts

    with _engine() as engine:
        _prune(engine)
    failures = []
    for host in find_hosts()[1:] if hosts else ():
        if why := host.left_out or ("" if host.engine else host.lacks[0]):
            click.echo(f"host {host.name} is left out: {why}", err=True)
            continue
        try:
            with naming(host.spec), connect(host.engine) as engine:
                _prune(engine, on=f" on {host.name}")
        except HostError as failure:  # the others are pruned first
            failures.append(failure)
    if failures:
        raise failures[0]


def _prune(engine: APIClient, *, on: str = "") -> None:
    from testbed.runtimes.docker.copies import remove_data
    from testbed.runtimes.docker.image import current_images, remove_images

    removed = ((image.reference, kept) for image, kept in remove_images(engine, current_images()))
    for what, kept in (*removed, *remove_data(engine)):
        click.echo(f"kept {what}{on}: {kept}" if kept else f"removed {what}{on}")


def _engine() -> APIClient:
    from testbed.host.requirements import require_linux
    from testbed.runtimes.docker.engine import connect

    require_linux("image")
    return connect()


def _print(images: list[OwnImage], is_current: Callable[[OwnImage], bool]) -> None:
    from datetime import UTC, datetime

    width = max(len(image.reference) for image in images)
    for image in images:
        created = datetime.fromtimestamp(image.created, UTC).strftime("%Y-%m-%d %H:%M")
        state = "current" if is_current(image) else "old"
        size = f"{image.size_bytes / 1e6:6,.0f} MB"
        click.echo(f"{image.reference:{width}}  {image.part:12}  {state:7}  {created}  {size}")
