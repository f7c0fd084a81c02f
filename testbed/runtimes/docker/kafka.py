"""The image of a broker: the official one where it can be pulled, else one of a host's own jars.

Our own is a Debian with a Java, and Kafka's jars where the official image has them too.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import HostError
from testbed.host.kafka import find_jars
from testbed.runtimes.docker import offline
from testbed.runtimes.docker.build import follow, proxies
from testbed.runtimes.docker.faults import engine_faults
from testbed.runtimes.docker.image import KAFKA, KAFKA_BASE, KAFKA_JARS, PART_LABEL, labels_of
from testbed.runtimes.docker.inputs import import_archive, refusal, work_folder
from testbed.runtimes.docker.sources import (
    DISTRIBUTION,
    KAFKA_DOCKERFILE,
    hash_sources,
    image_sources,
    pack,
)

if TYPE_CHECKING:
    from docker import APIClient

OFFICIAL = "apache/kafka:4.2.0"
KAFKA_LABEL = "org.edge-testbed.kafka"
"""Which version of Kafka an image of ours holds."""

BUILD_KAFKA = "testbed image build --kafka"
SILENCE_SECONDS = 600.0


def own_name() -> str:
    """The name of the image that is built here, after what it is built by."""
    recipe = {KAFKA_DOCKERFILE: image_sources()[KAFKA_DOCKERFILE]}
    return f"{DISTRIBUTION}-kafka:{hash_sources(recipe)}"


def find_image(engine: APIClient) -> str:
    """The image that a broker's container is made from; of two, the official one.

    Raises:
        HostError: the engine has none; says how to get one.
    """
    own = own_name()
    for name in (OFFICIAL, own):
        if labels_of(engine, name, doing="looking for Kafka's image") is not None:
            return name
    raise HostError(
        f"The Docker engine has no image of Kafka for the broker: neither {OFFICIAL} nor {own}.",
        hint=f"Try: {BUILD_KAFKA}",
    )


def build_image(
    engine: APIClient,
    environment: Mapping[str, str],
    *,
    asks_registry: bool,
    say: Callable[[str], None],
    log: Callable[[str], None],
) -> str:
    """Pull the official image or, where no registry answers, build ours; returns its name.

    Args:
        engine: the engine's API.
        environment: says where this host's Kafka is; see ``find_jars``.
        asks_registry: whether to try that at all.
        say: is told what is done and why.
        log: is given every line of the engine's.

    Raises:
        HostError: neither can be had, or the engine failed; says which and why.
    """
    reason = refusal(engine, OFFICIAL) if asks_registry else "told to ask none"
    if not reason:
        say(f"pulling {OFFICIAL}")
        _pull(engine)
        return OFFICIAL
    jars, version = find_jars(environment)
    name = own_name()
    labels = labels_of(engine, name)
    if labels is not None and labels.get(KAFKA_LABEL) == version:
        say(f"{name} is there already, with Kafka {version}")
        return name
    say(f"no registry answers ({reason}): building {name} from Kafka {version} in {jars}")
    base = _base(engine, say)
    content = _import_jars(engine, jars, version)
    try:
        _build(engine, name, base=base, jars=content, version=version, log=log)
    finally:
        with engine_faults("removing what was built from"):
            engine.remove_image(content)
    return name


def _pull(engine: APIClient) -> None:
    if labels_of(engine, OFFICIAL) is None:
        repository, _, tag = OFFICIAL.partition(":")
        with engine_faults(f"pulling {OFFICIAL}"):
            engine.pull(repository, tag=tag)


def _base(engine: APIClient, say: Callable[[str], None]) -> str:
    """A Debian with a Java, which mmdebstrap makes here once."""
    name = f"{DISTRIBUTION}-kafka-base:{offline.java_base_hash()}"
    if labels_of(engine, name) is not None:
        say(f"base: {name}, made before")
        return name
    say(f"base: a Debian {offline.SUITE} with a Java, made by mmdebstrap")
    with work_folder() as folder:
        import_archive(engine, offline.make_java_base(folder, os.environ), name, KAFKA_BASE)
    return name


def _import_jars(engine: APIClient, jars: Path, version: str) -> str:
    """An image with nothing but the jars in it, as engines without named contexts need one."""
    name = f"{DISTRIBUTION}-kafka-jars:{version}"
    with work_folder() as folder:
        archive = folder / "jars.tar"
        with tarfile.open(archive, mode="w") as packed:
            for jar in sorted(jars.glob("*.jar")):
                packed.add(jar.resolve(), jar.name)
        import_archive(engine, archive, name, KAFKA_JARS)
    return name


def _build(
    engine: APIClient,
    name: str,
    *,
    base: str,
    jars: str,
    version: str,
    log: Callable[[str], None],
) -> None:
    context = pack({KAFKA_DOCKERFILE: image_sources()[KAFKA_DOCKERFILE]})
    with engine_faults(f"building {name}"):
        answers = engine.build(
            fileobj=context,
            custom_context=True,
            dockerfile=KAFKA_DOCKERFILE,
            tag=name,
            buildargs={**proxies(), "BASE_IMAGE": base, "JARS": jars},
            labels={PART_LABEL: KAFKA, KAFKA_LABEL: version},
            network_mode="none",  # the base has all that there is to install
            rm=True,
            forcerm=True,
            decode=True,
            timeout=SILENCE_SECONDS,
        )
        follow(answers, name, log)
