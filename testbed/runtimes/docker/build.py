"""Builds the image of agent and nodes, in two steps: what the package imports, then the package."""

from __future__ import annotations

import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed import __version__
from testbed.runtimes.docker import offline
from testbed.runtimes.docker.faults import engine_faults, refused
from testbed.runtimes.docker.image import (
    BASE,
    DEPENDENCIES,
    KAFKA,
    KAFKA_BASE,
    NODES,
    PART_LABEL,
    SOURCE_LABEL,
    VERSION_LABEL,
    WHEELS,
    OwnImage,
    image_name,
    labels_of,
)
from testbed.runtimes.docker.inputs import Variant, find_inputs
from testbed.runtimes.docker.sources import (
    DISTRIBUTION,
    DOCKERFILE,
    KAFKA_DOCKERFILE,
    hash_dependencies,
    hash_requirements,
    hash_sources,
    image_sources,
    pack,
)

if TYPE_CHECKING:
    from docker import APIClient

ARGUMENTS_LABEL = "org.edge-testbed.arguments"
"""What the dependencies were built with, so that the package is added to these very ones."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy")
SILENCE_SECONDS = 1800.0
"""How long a step of a build may say nothing: as long as pip may download."""

SHOWN_LINES = 12


def build_image(
    engine: APIClient,
    variant: Variant,
    *,
    say: Callable[[str], None],
    log: Callable[[str], None],
) -> str:
    """Build the image that holds this very package, and return its name.

    A name is given to what is complete only: a build that fails or is interrupted leaves none.

    Args:
        engine: the engine's API.
        variant: which image.
        say: is told what is done and why.
        log: is given every line of the engine's.

    Raises:
        HostError: a part cannot be had, or the engine failed; the message says which and why.
    """
    sources = image_sources()
    source = hash_sources(sources)
    name = image_name(gpu=variant.gpu, source=source)
    if labels_of(engine, name) is not None and not variant.base:
        say(f"{name} is there already")
        return name
    dependencies = f"{DISTRIBUTION}-dependencies:{variant.tag(sources)}"
    arguments = _arguments_of(engine, dependencies)
    step = partial(_build, engine, pack(sources), log=log)
    if arguments is None:
        arguments = find_inputs(engine, variant, sources, say=say)
        say("installing what nodes import")
        labels = {PART_LABEL: DEPENDENCIES, ARGUMENTS_LABEL: json.dumps(arguments)}
        step(dependencies, arguments, labels, target="dependencies")
    say(f"adding testbed {__version__} ({source})")
    labels = {PART_LABEL: NODES, SOURCE_LABEL: source, VERSION_LABEL: __version__}
    step(name, arguments, labels)
    return name


def current_images() -> Callable[[OwnImage], bool]:
    """Tells images that the next build would use, or a run would now, from old ones."""
    sources = image_sources()
    source, installed = hash_sources(sources), hash_dependencies(sources)
    wheels = hash_requirements(sources)

    def is_current(image: OwnImage) -> bool:
        tag = image.name.rpartition(":")[2]
        if image.part == NODES:
            return image.name in {image_name(gpu=gpu, source=source) for gpu in (False, True)}
        if image.part == DEPENDENCIES:
            return tag.startswith(installed)
        return (image.part, tag) in {
            (WHEELS, wheels),
            (BASE, offline.base_hash()),
            (KAFKA, hash_sources({KAFKA_DOCKERFILE: sources[KAFKA_DOCKERFILE]})),
            (KAFKA_BASE, offline.java_base_hash()),
        }

    return is_current


def _arguments_of(engine: APIClient, dependencies: str) -> dict[str, str] | None:
    """What dependencies were built with; None if they or something of it is gone."""
    labels = labels_of(engine, dependencies)
    if labels is None:
        return None
    arguments: dict[str, str] = json.loads(labels[ARGUMENTS_LABEL])
    images = (arguments[name] for name in ("BASE_IMAGE", "WHEELS") if name in arguments)
    gone = any(labels_of(engine, image) is None for image in images)
    return None if gone else arguments


def _build(
    engine: APIClient,
    context: io.BytesIO,
    name: str,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
    *,
    log: Callable[[str], None],
    target: str | None = None,
) -> None:
    context.seek(0)
    with engine_faults(f"building {name}"):
        answers = engine.build(
            fileobj=context,
            custom_context=True,
            dockerfile=DOCKERFILE,
            tag=name,
            target=target,
            buildargs={**proxies(), **arguments},
            labels=dict(labels),
            # With wheels at hand none is needed, nor then a bridge of the engine's.
            network_mode="none" if "WHEELS" in arguments else None,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=SILENCE_SECONDS,
        )
        follow(answers, name, log)


def proxies() -> dict[str, str]:
    """What a build has to know of this host's proxies."""
    return {key: os.environ[key] for key in PROXIES if key in os.environ}


def follow(answers: Iterable[dict[str, Any]], name: str, log: Callable[[str], None]) -> None:
    """Pass on what the engine says until the build's end, and if it failed, the end of that."""
    said: deque[str] = deque(maxlen=SHOWN_LINES)
    failure = ""
    for answer in answers:  # to the end also after a failure, or the connection stays open
        for line in answer.get("stream", "").splitlines():
            if line.strip():
                said.append(line)
                log(line)
        failure = answer.get("error", failure)
    if failure:
        raise refused(f"building {name}", "\n  ".join([*said, failure]))
