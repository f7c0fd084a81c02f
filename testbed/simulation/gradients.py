"""Gradients that a simulated run reuses from other runs.

If training does not depend on time, as with BSP or DDL, runs that differ in links, speeds or rates
train the same model. A gradient is identified by everything that it depends on, so a reused one is
bit-identical to a computed one.

An entry is a file: 32 bytes that identify the gradient, the SHA-256 of its values, and the values.
A file with other content, or one that is not a regular file, is skipped and noted.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from testbed.models.base import Images, Targets
from testbed.payloads import VALUE_BYTES, Vector

COMPUTED, REUSED, REFUSED = "computed", "reused", "refused"
"""Subfolders of a run's folder: gradients that it computed, links to gradients that it reused, and
errors of gradients that it found but could not use."""

_HASH_BYTES = hashlib.sha256().digest_size
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Reuse(NamedTuple):
    """Where a run finds gradients and writes its own.

    Attributes:
        folder: holds a folder for each run with gradients.
        run: the run's name.
        most_bytes: maximum size of the run's own folder, including links.
    """

    folder: Path
    run: str
    most_bytes: int

    def open(self, network: str, *, processes: int) -> Gradients:
        """Open the gradients for one process of the run; the processes share the space equally.

        Args:
            network: identifies the network.
            processes: number of processes of the run.
        """
        own = self.folder / self.run
        for part in (COMPUTED, REUSED, REFUSED):
            (own / part).mkdir(parents=True, exist_ok=True)
        others = [one / part for one in self.folder.iterdir() for part in (COMPUTED, REUSED)]
        others = [one for one in others if one.parent != own]
        return Gradients(own, others, network.encode(), self.most_bytes // processes)


@dataclass
class Gradients:
    """The gradients of one network, of this run and of others, for one process of the run.

    Attributes:
        own: the run's folder.
        others: folders with gradients of other runs.
        network: part of the name of each gradient.
        room: bytes that may still be written or linked.
    """

    own: Path
    others: Sequence[Path]
    network: bytes
    room: int

    def gradient(
        self, at: Vector, images: Images, targets: Targets, compute: Callable[[], Vector]
    ) -> Vector:
        """Return the gradient of a batch at the parameters ``at``: a reused or a computed one."""
        name = self._name(at, images, targets)
        for folder in self.others:
            try:
                gradient = _read(folder / name, bytes.fromhex(name), size=at.size)
                taken = 2 * _HASH_BYTES + gradient.nbytes
                if taken <= self.room:
                    os.link(folder / name, self.own / REUSED / name)
                    self.room -= taken
            except FileNotFoundError:
                continue  # not computed there, or removed in the meantime
            except FileExistsError:
                pass  # reused before: the same batch at the same parameters
            except (ValueError, OSError) as error:
                found = error.strerror if isinstance(error, OSError) else error
                (self.own / REFUSED / name).write_text(f"{folder / name}: {found}")
                continue
            return gradient
        gradient = compute()
        if 2 * _HASH_BYTES + gradient.nbytes <= self.room:
            self._write(name, gradient)
        return gradient

    def _name(self, at: Vector, images: Images, targets: Targets) -> str:
        known = hashlib.sha256(self.network)
        for part in (at, images, targets):
            known.update(f"{part.dtype.str} {part.shape} ".encode())
            known.update(np.ascontiguousarray(part).data)
        return known.hexdigest()

    def _write(self, name: str, gradient: Vector) -> None:
        """Write a gradient for other runs; stop writing once the disk is full."""
        unfinished = self.own / f"{name}.new"
        try:
            with unfinished.open("xb") as file:
                file.write(bytes.fromhex(name) + hashlib.sha256(gradient.data).digest())
                file.write(gradient.data)
        except FileExistsError:
            return  # another process is writing it, or a killed process left it
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            unfinished.unlink()
            self.room = 0
            return
        unfinished.rename(self.own / COMPUTED / name)
        self.room -= 2 * _HASH_BYTES + gradient.nbytes


def _read(path: Path, identity: bytes, *, size: int) -> Vector:
    """Read the entry with this identity and ``size`` values.

    Raises:
        FileNotFoundError: the entry does not exist.
        OSError: it is a symbolic link, or not readable.
        ValueError: its content is not that of the request.
    """
    descriptor = os.open(path, _LOOK)
    try:
        found, length = os.fstat(descriptor), 2 * _HASH_BYTES + VALUE_BYTES * size
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("found something other than a regular file")
        if found.st_size != length:
            raise ValueError(f"found {found.st_size} bytes, expected {length}")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            head = file.read(2 * _HASH_BYTES)
            gradient = np.fromfile(file, np.float32)
    finally:
        os.close(descriptor)
    if head[:_HASH_BYTES] != identity:
        raise ValueError("found the gradient of other inputs")
    if head[_HASH_BYTES:] != hashlib.sha256(gradient.data).digest():
        raise ValueError("found values that do not match their SHA-256")
    return gradient


def refused(own: Path) -> list[str]:
    """Return the errors of the gradients that a run found but had to compute itself."""
    return [path.read_text() for path in sorted((own / REFUSED).glob("*"))]


def count_reused(own: Path) -> int:
    """Return how many gradients a run reused, as far as there was space to link them."""
    return sum(1 for _ in (own / REUSED).glob("*"))
