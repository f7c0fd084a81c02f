"""What the image is built from: what a registry and package indexes have, or what this host makes.

registry answers    python:3.11-slim, and pip in the build asks its index and that of torch
none does           a Debian that mmdebstrap makes here, and wheels that pip downloads here
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import HostError
from testbed.runtimes.docker import offline
from testbed.runtimes.docker.faults import engine_faults, refused
from testbed.runtimes.docker.image import BASE, PART_LABEL, WHEELS, labels_of
from testbed.runtimes.docker.sources import DISTRIBUTION, hash_dependencies, hash_requirements

if TYPE_CHECKING:
    from docker import APIClient

BASE_IMAGE = "python:3.11-slim"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
GPU_TORCH_INDEX = "https://pypi.org/simple"
"""Its builds of torch for Linux are those with CUDA."""

REGISTRY_SECONDS = 20.0
WORK_PREFIX = "edge-testbed-image-"


@dataclass(frozen=True)
class Variant:
    """Which image is asked for.

    Attributes:
        gpu: one with a torch that uses NVIDIA GPUs.
        base: the image to build on; empty for the usual one.
        offline: ask no registry.
    """

    gpu: bool = False
    base: str = ""
    offline: bool = False

    def tag(self, sources: Mapping[str, bytes]) -> str:
        """What tells its dependencies from those of other sources and variants."""
        base = f"-{hashlib.sha256(self.base.encode()).hexdigest()[:6]}" if self.base else ""
        return f"{hash_dependencies(sources)}{base}{'-gpu' if self.gpu else ''}"


def find_inputs(
    engine: APIClient,
    variant: Variant,
    sources: Mapping[str, bytes],
    *,
    say: Callable[[str], None],
) -> dict[str, str]:
    """The arguments of the build, once the engine has, or can get, what they name.

    ``say`` is told what is done and why.

    Raises:
        HostError: it cannot be had; the message says what is missing.
    """
    wanted = variant.base or BASE_IMAGE
    reason = "told to ask none" if variant.offline else refusal(engine, wanted)
    if not reason:
        say(f"base: {wanted}")
        index = GPU_TORCH_INDEX if variant.gpu else TORCH_INDEX
        return {"BASE_IMAGE": wanted, "TORCH_INDEX": index}
    if variant.gpu or variant.base:
        what = "An image for GPUs" if variant.gpu else f"An image on {wanted}"
        raise HostError(f"{what} can only be built where a registry answers: {reason}.")
    say(f"no registry answers ({reason}): building from what this host can make")
    return {"BASE_IMAGE": _own_base(engine, say), "WHEELS": _own_wheels(engine, sources, say)}


def refusal(engine: APIClient, name: str) -> str:
    """Why the engine cannot get an image; empty if it has it or can."""
    from docker.errors import APIError
    from requests.exceptions import Timeout

    if labels_of(engine, name) is not None:
        return ""
    usual, engine.timeout = engine.timeout, REGISTRY_SECONDS  # a firewall may keep one silent
    with engine_faults("asking the registry"):
        try:
            engine.inspect_distribution(name)
        except Timeout:
            return f"no answer about {name}"
        except APIError as error:
            if error.status_code in {401, 403, 404}:
                raise HostError(
                    f"The registry answers that there is no image {name}, or not for you."
                ) from error
            return error.explanation or str(error)
        finally:
            engine.timeout = usual
    return ""


def _own_base(engine: APIClient, say: Callable[[str], None]) -> str:
    name = f"{DISTRIBUTION}-base:{offline.base_hash()}"
    if labels_of(engine, name) is not None:
        say(f"base: {name}, made before")
    else:
        say(f"base: a Debian {offline.SUITE} made by mmdebstrap")
        with work_folder() as folder:
            import_archive(engine, offline.make_base(folder, os.environ), name, BASE)
    return name


def _own_wheels(engine: APIClient, sources: Mapping[str, bytes], say: Callable[[str], None]) -> str:
    name = f"{DISTRIBUTION}-wheels:{hash_requirements(sources)}"
    if labels_of(engine, name) is not None:
        say(f"packages: {name}, downloaded before")
    else:
        say("packages: downloaded by this host's pip")
        with work_folder() as folder:
            archive = offline.make_wheels(folder, sources, torch_index=TORCH_INDEX)
            import_archive(engine, archive, name, WHEELS)
    return name


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, readable to the other user that mmdebstrap may run as."""
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def import_archive(engine: APIClient, archive: Path, name: str, part: str) -> None:
    """Make an image of one layer of a tar archive; HostError if the engine fails or is full."""
    repository, _, tag = name.partition(":")
    with engine_faults(f"importing {name}"):
        answer = engine.import_image(
            str(archive), repository=repository, tag=tag, changes=[f"LABEL {PART_LABEL}={part}"]
        )
    for line in answer.splitlines():
        if line.strip() and (error := json.loads(line).get("error")):
            raise refused(f"importing {name}", error)
