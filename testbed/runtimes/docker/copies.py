"""What other hosts need of this one, copied by digest: the image, and the data set in a volume.

The volume of a data set is kept for later runs. It is used only if it has the file WHOLE, which the
other host itself makes once every file there has its digest: an interrupted copy lacks it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.datasets import checksums
from testbed.errors import HostError
from testbed.runtimes.docker.archives import get_file, packed
from testbed.runtimes.docker.containers import CONTROLLER, LABEL
from testbed.runtimes.docker.engine import container_faults, engine_faults, refused
from testbed.runtimes.docker.lifecycle import last_output, list_containers, remove
from testbed.values.topology import HostSpec

if TYPE_CHECKING:
    from docker import APIClient

DATA = f"{LABEL}data"
"""Label of a data set's volume: its folder on the controller's host."""

WHOLE = ".whole"
COPIED = ".copied"
COMPARE = f"sha256sum --check --quiet --strict {COPIED} && sync && mv {COPIED} {WHOLE} && sync"
"""On disk before it is whole: a power cut may follow."""

ANNOUNCED_SECONDS = 5.0
"""Between two announcements of how much has been copied."""

COPY_SECONDS = 3600.0
"""A copy takes less: a container for one that is older was left by a controller that was killed."""

IN_USE = 409


def copy_image(
    here: APIClient, there: APIClient, image: str, *, phase: Callable[[str], None], to: str
) -> None:
    """Copy an image to an engine that lacks it; compare the two by their IDs.

    Args:
        here, there: the engines.
        image: its ID.
        phase: announces what takes long.
        to: the name of the other engine's host.

    Raises:
        HostError: an engine failed, or the copy is another image.
    """
    if has_image(there, image):
        return
    with engine_faults("copying an image"):
        found = here.inspect_image(image)
        name = (found["RepoTags"] or [image])[0]
        pieces = shown(here.get_image(name), f"image {name}", found["Size"], phase=phase, to=to)
        for said in there.load_image(pieces, quiet=True) or ():
            if "error" in said:
                raise refused("loading the image", str(said["error"]))
    if not has_image(there, image):
        raise HostError(f"the copy of the image {name} is not {image}, like the original.")


def has_image(engine: APIClient, identity: str) -> bool:
    """Return whether an engine has the image with this ID."""
    from docker.errors import ImageNotFound

    with engine_faults("looking for images"), suppress(ImageNotFound):
        engine.inspect_image(identity)
        return True
    return False


def copy_data(
    engine: APIClient, host: HostSpec, folder: Path, image: str, *, phase: Callable[[str], None]
) -> None:
    """Copy a prepared data set to a host that lacks it; the host compares the digests of all files.

    Args:
        engine: of the host.
        host: the other host.
        folder: of the data set.
        image: ID of the image of nodes, which that host has.
        phase: announces what takes long.

    Raises:
        DataError: the data set is damaged.
        HostError, NodeError: the engine failed, or the copy differs.
    """
    with _locked(folder), _helper(engine, host, folder, image) as helper:
        if _is_whole(engine, helper, folder):
            return
        size = sum(file.stat().st_size for file in folder.iterdir())
        content = packed(folder, also={COPIED: checksums(folder).encode()})
        pieces = shown(content, f"data set {folder.name}", size, phase=phase, to=host.name)
        with container_faults("the data set"):
            engine.put_archive(helper, str(folder), pieces)
            engine.start(helper)
            differs = engine.wait(helper)["StatusCode"] != 0
        if differs:
            raise HostError(
                f"the copy of the data set differs from {folder}.{last_output(engine, helper)}",
                hint=f"If that is damaged, remove it, which prepares it again: rm -r {folder}",
            )


def check_data(engine: APIClient, container: str, folder: Path) -> None:
    """Reject a container whose volume of a data set is not a whole copy.

    Raises:
        HostError: it is not: it was removed between its copy and its use, and created again empty.
    """
    if not _is_whole(engine, container, folder):
        raise HostError(
            f"the copy of the data set {folder} was removed as this run started.",
            hint="Repeat it; `testbed image prune` removes the copies that no container uses.",
        )


def _is_whole(engine: APIClient, container: str, folder: Path) -> bool:
    """Return whether the copy in a container has the digests of the original."""
    from docker.errors import NotFound

    with container_faults("the data set"), suppress(NotFound):
        return get_file(engine, container, folder / WHOLE) == checksums(folder).encode()
    return False


def data_volume(engine: APIClient, host: HostSpec, folder: Path) -> str:
    """Return the name of the volume of a prepared data set on another host; create it if needed."""
    name = _volume_name(host, folder)
    labels = {DATA: str(folder), CONTROLLER: host.controller}
    with container_faults("the data set"):
        engine.create_volume(name, labels=labels)
    return name


def remove_data(engine: APIClient) -> Iterator[tuple[str, str]]:
    """Remove the copies of data sets in an engine; yield what each is, and why it was kept."""
    from docker.errors import APIError, NotFound

    with engine_faults("removing copies of data sets"):
        for helper in list_containers(engine, DATA):
            if time.time() - helper["Created"] > COPY_SECONDS:
                remove(engine, helper["Id"])  # of a controller that was killed
        for volume in engine.volumes(filters={"label": DATA})["Volumes"] or ():
            labels, kept = volume["Labels"], ""
            try:
                engine.remove_volume(volume["Name"])
            except NotFound:
                continue
            except APIError as error:
                if error.status_code != IN_USE:
                    raise
                kept = error.explanation or "in use"
            yield f"the copy of {labels[DATA]} of {labels[CONTROLLER]}", kept


def shown(
    pieces: Iterable[bytes], what: str, size_bytes: int, *, phase: Callable[[str], None], to: str
) -> Iterator[bytes]:
    """Return the pieces of a copy to a host, which announce how much of it has been sent."""
    size = f"{size_bytes / 1e6:,.0f} MB"
    phase(f"copying the {what} ({size}) to {to}")
    kind = what.rpartition(" ")[0]
    return counted(
        pieces, lambda sent: phase(f"copying the {kind} to {to}: {sent / 1e6:,.0f} of {size}")
    )


def counted(
    pieces: Iterable[bytes], announce: Callable[[int], None], *, every: float = ANNOUNCED_SECONDS
) -> Iterator[bytes]:
    """Yield pieces, and announce from time to time how many bytes they had until then."""
    sent, due = 0, time.monotonic() + every
    for piece in pieces:
        yield piece
        sent += len(piece)
        if time.monotonic() >= due:
            announce(sent)
            due = time.monotonic() + every


def _volume_name(host: HostSpec, folder: Path) -> str:
    # The controller and the path are part of it: their lock keeps two from copying at once.
    what = f"{host.controller}:{folder}:{checksums(folder)}"
    return f"testbed-data-{sha256(what.encode()).hexdigest()[:12]}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Inside, no other process copies this data set."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _helper(engine: APIClient, host: HostSpec, folder: Path, image: str) -> Iterator[str]:
    """Yield a container that has the volume, and compares what is in it when it is started."""
    volume = data_volume(engine, host, folder)
    body = {
        "Image": image,
        "Entrypoint": ["sh", "-c", COMPARE],
        "User": "0:0",
        "WorkingDir": str(folder),
        "Labels": {DATA: str(folder), CONTROLLER: host.controller},
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "Mounts": [{"Type": "volume", "Source": volume, "Target": str(folder)}],
        },
    }
    remove(engine, volume)  # of a controller that was killed
    with container_faults("the data set"):
        helper = str(engine.create_container_from_config(body, volume)["Id"])
    try:
        yield helper
    finally:
        remove(engine, helper)
