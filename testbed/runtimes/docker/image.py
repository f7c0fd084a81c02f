"""The image of agent and nodes: what it is called, and whether the engine has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed import __version__
from testbed.errors import HostError
from testbed.runtimes.docker.faults import BUILD, engine_faults
from testbed.runtimes.docker.sources import DISTRIBUTION, hash_sources, image_sources
from testbed.runtimes.docker.stock import NODES, SOURCE_LABEL, VERSION_LABEL, list_images

if TYPE_CHECKING:
    from docker import APIClient


def source_hash() -> str:
    """12 hexadecimal digits of everything the image is made of.

    Raises:
        HostError: the recipe of the image is not there.
    """
    return hash_sources(image_sources())


def image_name(*, gpu: bool = False, source: str = "") -> str:
    """The name of the image that holds this very package.

    Args:
        gpu: of the one whose torch uses NVIDIA GPUs.
        source: hash of the package's sources where it is known.

    Raises:
        HostError: the recipe of the image is not there.
    """
    return f"{DISTRIBUTION}:{__version__}-{source or source_hash()}{'-gpu' if gpu else ''}"


def check_image(engine: APIClient, name: str = "", *, gpu: bool = False) -> str:
    """The name of an image that the engine has and that holds this very package.

    Args:
        engine: the engine's API.
        name: an image to take instead of the one that ``testbed image build`` makes.
        gpu: whether nodes are to use GPUs.

    Raises:
        HostError: there is none, or it holds another version of the package.
    """
    from docker.errors import ImageNotFound

    expected = source_hash()
    wanted = name or image_name(gpu=gpu, source=expected)
    hint = f"Try: {BUILD}{' --gpu' if gpu else ''}"
    with engine_faults("looking for the image"):
        try:
            labels = engine.inspect_image(wanted)["Config"]["Labels"] or {}
        except ImageNotFound:
            labels = None
    if labels is None:
        raise HostError(_missing(engine, wanted), hint=hint)
    found = labels.get(SOURCE_LABEL)
    if found != expected:
        holds = f"testbed {labels.get(VERSION_LABEL)} ({found})" if found else "no testbed"
        raise HostError(
            f"The image {wanted} holds {holds}, and this is testbed {__version__} ({expected}).",
            hint=f"{hint}, and name no image in the scenario." if name else hint,
        )
    return wanted


def _missing(engine: APIClient, wanted: str) -> str:
    others = [image.name for image in list_images(engine) if image.part == NODES and image.name]
    if not others:
        return f"The Docker engine has no image {wanted}."
    return (
        f"The Docker engine has no image {wanted}, which is of this version of testbed;"
        f" it has {', '.join(others)}."
    )
