"""The images that the engine has of us: told apart by a label from all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.runtimes.docker.faults import engine_faults

if TYPE_CHECKING:
    from docker import APIClient

SOURCE_LABEL = "org.edge-testbed.source"
VERSION_LABEL = "org.edge-testbed.version"
PART_LABEL = "org.edge-testbed.part"
"""On every image of ours: what it is for."""

NODES, DEPENDENCIES, WHEELS, BASE = "nodes", "dependencies", "wheels", "base"


@dataclass(frozen=True)
class OwnImage:
    """An image that ``testbed image build`` made.

    Attributes:
        identity: the engine's name for it, ``sha256:...``.
        name: repository and tag; empty if it has none (left of a build).
        part: NODES, or what such an image is built from.
        source: hash of the sources it holds; empty unless it is for nodes.
        created: when, in seconds since 1970.
        size_bytes: with everything it shares with others.
    """

    identity: str
    name: str
    part: str
    source: str
    created: float
    size_bytes: int

    @property
    def reference(self) -> str:
        """What the engine knows it by."""
        return self.name or self.identity


def list_images(engine: APIClient) -> list[OwnImage]:
    """The engine's images that are ours, the newest first.

    Raises:
        HostError: the engine does not answer.
    """
    with engine_faults("listing images"):
        found = engine.images(filters={"label": PART_LABEL})
    images = [image for entry in found for image in _own_images(entry)]
    return sorted(images, key=lambda image: (-image.created, image.name))


def remove_images(
    engine: APIClient, is_current: Callable[[OwnImage], bool]
) -> Iterator[tuple[OwnImage, str]]:
    """Remove our images but current ones and those in use; yields each, and why it was kept.

    Raises:
        HostError: the engine does not answer.
    """
    from docker.errors import APIError, ImageNotFound

    for image in list_images(engine):
        if is_current(image):
            continue
        kept = ""
        with engine_faults("removing images"):
            try:
                engine.remove_image(image.reference)
            except ImageNotFound:
                continue  # went with one that it was made for
            except APIError as error:
                if error.status_code != 409:
                    raise
                kept = error.explanation or "in use"
        yield image, kept


def _own_images(entry: dict[str, Any]) -> Iterator[OwnImage]:
    for name in entry["RepoTags"] or [""]:
        yield OwnImage(
            identity=entry["Id"],
            name="" if name == "<none>:<none>" else name,
            part=entry["Labels"][PART_LABEL],
            source=entry["Labels"].get(SOURCE_LABEL, ""),
            created=float(entry["Created"]),
            size_bytes=entry["Size"],
        )
