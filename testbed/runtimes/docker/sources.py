"""The sources of the image: the package's code and the recipe next to it, and their hash."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import testbed
from testbed.errors import HostError

DISTRIBUTION = "edge-testbed"
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
    code = {f"testbed/{file.relative_to(package)}": file for file in package.rglob("*.py")}
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
    recipe: dict[str, Path] = {}
    with suppress(PackageNotFoundError):
        for file in distribution(DISTRIBUTION).files or []:
            _, found, name = file.as_posix().rpartition(f"share/{DISTRIBUTION}/")
            if found and name in RECIPE:
                recipe[name] = Path(str(file.locate())).resolve()
    if missing := sorted(set(RECIPE) - set(recipe)):
        raise HostError(
            f"The files to build the image are not installed with testbed: {', '.join(missing)}.",
            hint=f"Reinstall {DISTRIBUTION}, or run testbed from a clone of its repository.",
        )
    return recipe
