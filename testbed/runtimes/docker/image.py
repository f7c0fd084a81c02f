"""Our images in the engine, identified by a label, and the sources that determine their content."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import testbed
from testbed import __version__
from testbed.errors import HostError
from testbed.host.installed import DISTRIBUTION, installed_files
from testbed.runtimes.docker.engine import BUILD, answering, engine_faults

if TYPE_CHECKING:
    from docker import APIClient

DOCKERFILE = "docker/Dockerfile"
REQUIREMENTS = "docker/requirements.txt"
CONSTRAINTS = "constraints.txt"
DEPENDENCY_RECIPE = (DOCKERFILE, "docker/install.sh", REQUIREMENTS, CONSTRAINTS)
"""Files that determine what is installed besides the package, by path in the repository."""

KAFKA_DOCKERFILE = "docker/kafka.Dockerfile"
OFFLINE = "docker/offline.sh"
RECIPE = (*DEPENDENCY_RECIPE, KAFKA_DOCKERFILE, OFFLINE, "pyproject.toml")
HASH_LENGTH = 12


def image_sources() -> dict[str, bytes]:
    """Return all current sources of an image: path in the repository to content, in order.

    Raises:
        HostError: the recipe is missing.
    """
    package = Path(testbed.__file__).parent
    files = (*package.rglob("*.py"), *package.glob("scenario/data/*.yaml"))  # read by nodes
    code = {f"testbed/{file.relative_to(package)}": file for file in files}
    recipe = _recipe_of_clone(package.parent) or _recipe_installed()
    return {name: file.read_bytes() for name, file in sorted({**code, **recipe}.items())}


def hash_sources(sources: Mapping[str, bytes]) -> str:
    """Return 12 hexadecimal digits of a hash of the names and contents of files, in order."""
    digest = hashlib.sha256()
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:HASH_LENGTH]


def pack(sources: Mapping[str, bytes]) -> io.BytesIO:
    """Return a reproducible tar archive of files, readable by any user."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in sources.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    return packed


def _recipe_of_clone(root: Path) -> dict[str, Path]:
    recipe = {name: root / name for name in RECIPE}
    return recipe if all(file.is_file() for file in recipe.values()) else {}


def _recipe_installed() -> dict[str, Path]:
    """Return the recipe as installed with the package, below share/edge-testbed."""
    recipe = {name: file for name, file in installed_files() if name in RECIPE}
    if missing := sorted(set(RECIPE) - set(recipe)):
        raise HostError(
            f"The files to build the image are not installed with testbed: {', '.join(missing)}.",
            hint=f"Reinstall {DISTRIBUTION}, or run testbed from a clone of its repository.",
        )
    return recipe


SOURCE_LABEL = "org.edge-testbed.source"
VERSION_LABEL = "org.edge-testbed.version"
PART_LABEL = "org.edge-testbed.part"
"""Label of every image that testbed builds: which part it is, such as NODES or BASE."""

NODES, DEPENDENCIES, WHEELS, BASE = "nodes", "dependencies", "wheels", "base"
GPU_WHEELS = "gpu-wheels"
KAFKA, KAFKA_BASE = "kafka", "kafka-base"
PACKAGES = (WHEELS, GPU_WHEELS)
STAGE = "stage"
"""Of the Dockerfile; as the packages, nothing needs it once the dependencies are installed."""

MADE_OF: Mapping[str, tuple[str, ...]] = {
    DEPENDENCIES: DEPENDENCY_RECIPE,
    WHEELS: (OFFLINE, CONSTRAINTS, REQUIREMENTS),
    GPU_WHEELS: (OFFLINE, CONSTRAINTS, REQUIREMENTS),
    BASE: (OFFLINE,),
    KAFKA: (KAFKA_DOCKERFILE,),
    KAFKA_BASE: (OFFLINE,),
}
"""The source files that determine the content of an image, by the value of PART_LABEL."""

NAMELESS = "<none>:<none>"
HUB, LOCAL = "docker.io/library/", "localhost/"
"""What Podman adds to names, depending on which of its commands gave them."""

OFFICIAL_KAFKA = "apache/kafka:4.2.0"


def source_hash() -> str:
    """Return 12 hexadecimal digits of a hash of all sources of the image; see ``image_sources``."""
    return hash_sources(image_sources())


def image_name(*, gpu: bool = False, source: str = "") -> str:
    """Return the name of the image with this package, whose ``source_hash`` may be given."""
    return f"{DISTRIBUTION}:{__version__}-{source or source_hash()}{'-gpu' if gpu else ''}"


def part_name(part: str, sources: Mapping[str, bytes]) -> str:
    """Return the name of an image that is not for nodes, by what determines its content."""
    return f"{DISTRIBUTION}-{part}:{hash_sources({one: sources[one] for one in MADE_OF[part]})}"


def find_kafka_image(engine: APIClient) -> str:
    """Return the image for a broker's container; the official one is preferred.

    Raises:
        HostError: the engine has none; says how to get one.
    """
    own = part_name(KAFKA, image_sources())
    for name in (OFFICIAL_KAFKA, own):
        if labels_of(engine, name, doing="looking for Kafka's image") is not None:
            return name
    raise HostError(
        f"The {answering()} engine has no image of Kafka for the broker: "
        f"neither {OFFICIAL_KAFKA} nor {own}.",
        hint=f"Try: {BUILD} --kafka",
    )


def find_users_image(engine: APIClient, name: str, *, whose: str) -> str:
    """Return the name of an image that a node's program names.

    Raises:
        HostError: the engine does not have it; names the node, and how to get the image.
    """
    if labels_of(engine, name, doing=f"looking for the image of {whose}") is None:
        raise HostError(
            f"{whose}: the {answering()} engine has no image {name}.",
            hint=f"Get it: {answering().lower()} pull {name}",
        )
    return name


def check_image(engine: APIClient, name: str = "", *, gpu: bool = False) -> str:
    """Return the name of an image in the engine that contains this package.

    Args:
        engine: the engine's API.
        name: an image to use instead of the one from ``testbed image build``.
        gpu: whether nodes use GPUs.

    Raises:
        HostError: there is none, or it contains another version of the package.
    """
    expected = source_hash()
    wanted = name or image_name(gpu=gpu, source=expected)
    hint = f"Try: {BUILD}{' --gpu' if gpu else ''}"
    labels = labels_of(engine, wanted, doing="looking for the image")
    if labels is None:
        others = [one.name for one in list_images(engine) if one.part == NODES and one.name]
        instead = f", which is of this version of testbed; it has {', '.join(others)}"
        raise HostError(
            f"The {answering()} engine has no image {wanted}{instead if others else ''}.", hint=hint
        )
    found = labels.get(SOURCE_LABEL)
    if found != expected:
        holds = f"testbed {labels.get(VERSION_LABEL)} ({found})" if found else "no testbed"
        raise HostError(
            f"The image {wanted} contains {holds}, but this is testbed {__version__} ({expected}).",
            hint=f"{hint}, and remove `image` from the scenario." if name else hint,
        )
    return wanted


def identity_of(engine: APIClient, name: str) -> str:
    """Return the engine's ID of an image, ``sha256:...``."""
    with engine_faults("looking for images"):
        return str(engine.inspect_image(name)["Id"])


def reference_to(engine: APIClient, identity: str, *, name: str) -> str:
    """Return the name of an image, or its ID if the name now refers to another image or to none."""
    from docker.errors import ImageNotFound

    with engine_faults("looking for images"):
        try:
            return name if engine.inspect_image(name)["Id"] == identity else identity
        except ImageNotFound:
            return identity


def labels_of(
    engine: APIClient, name: str, *, doing: str = "looking for images"
) -> dict[str, str] | None:
    """Return the labels of an image; None if the engine does not have it."""
    from docker.errors import ImageNotFound

    with engine_faults(doing):
        try:
            return engine.inspect_image(name)["Config"]["Labels"] or {}
        except ImageNotFound:
            return None


@dataclass(frozen=True)
class OwnImage:
    """An image made by ``testbed image build``."""

    reference: str  # the engine's name for it, or ``sha256:...`` if it has none
    name: str  # repository and tag; empty if it has none (left over from a build)
    part: str  # NODES, or what such an image is built from
    source: str  # hash of the sources in it; empty unless it is for nodes
    created: float  # when, in seconds since 1970
    size_bytes: int  # including everything it shares with other images


def list_images(engine: APIClient) -> list[OwnImage]:
    """Return our images in the engine, the newest first."""
    with engine_faults("listing images"):
        found = engine.images(filters={"label": PART_LABEL})
    images = [image for entry in found for image in _own_images(entry)]
    return sorted(images, key=lambda image: (-image.created, image.name))


def current_images() -> Callable[[OwnImage], bool]:
    """Return a predicate for images that the next build or a run would use now."""
    sources = image_sources()
    source = hash_sources(sources)
    names = {image_name(gpu=gpu, source=source) for gpu in (False, True)}
    names |= {part_name(part, sources) for part in MADE_OF}
    dependencies = part_name(DEPENDENCIES, sources)  # the name of a variant is longer
    return lambda image: image.name in names or image.name.startswith(dependencies)


def remove_images(
    engine: APIClient, is_current: Callable[[OwnImage], bool]
) -> Iterator[tuple[OwnImage, str]]:
    """Remove our images except current and used ones; yield each, and why it was kept."""
    from docker.errors import APIError, ImageNotFound

    for image in list_images(engine):
        if is_current(image):
            continue
        kept = ""
        with engine_faults("removing images"):
            try:
                engine.remove_image(image.reference)
            except ImageNotFound:
                continue  # removed with the image that it was made for
            except APIError as error:
                if error.status_code != 409:
                    raise
                kept = error.explanation or "in use"
        yield image, kept


def _own_images(entry: dict[str, Any]) -> Iterator[OwnImage]:
    for name in entry["RepoTags"] or [NAMELESS]:
        yield OwnImage(
            reference=entry["Id"] if name == NAMELESS else name,
            name=name.removeprefix(NAMELESS).removeprefix(HUB).removeprefix(LOCAL),
            part=entry["Labels"][PART_LABEL],
            source=entry["Labels"].get(SOURCE_LABEL, ""),
            created=float(entry["Created"]),
            size_bytes=entry["Size"],
        )
