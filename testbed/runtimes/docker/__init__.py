"""Runs as Docker containers: the image, the engine, and the driver that uses both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, WithJsonSchema

from testbed.errors import InvalidValue
from testbed.runtimes.config import Capabilities, ContainerRuntime

if TYPE_CHECKING:
    from testbed.runtimes.base import RuntimeDriver

_IMAGE = r"[a-z0-9][A-Za-z0-9._:/@-]{0,254}"


def _image(text: str) -> str:
    if not re.fullmatch(_IMAGE, text):
        raise InvalidValue("", "the name of an image, like edge-testbed:mine")
    return text


def with_tag(image: str) -> str:
    """Return the name of an image as an engine completes it: with a tag, or a digest."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


Image = Annotated[
    str, AfterValidator(_image), WithJsonSchema({"type": "string", "pattern": f"^{_IMAGE}$"})
]


class Docker(ContainerRuntime):
    """Containers of the Docker engine of this machine.

    Attributes:
        image: what they are made from; by default the image of this very package, which
            `testbed image build` makes.
    """

    # Memory: a shim, and the container's first process.
    capabilities = Capabilities(engine=True, gpus=True, images=True, container_bytes=8_000_000)

    name: Literal["docker"]
    image: Image | None = None

    def driver(self) -> RuntimeDriver:
        """Return the driver; see ContainerRuntime."""
        from testbed.runtimes.docker.driver import DockerDriver

        return DockerDriver(image=self.image)
