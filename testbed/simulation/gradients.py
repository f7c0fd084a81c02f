"""Gradients that a simulated run reuses, as another one has computed and written them.

Where training depends on no time, as with BSP or DDL, runs that differ in links, speeds or rates
train one and the same model. A gradient is known by all that it depends on, so that what is reused
is what would have been computed, to the bit.

An entry is a file: 32 bytes that say what it is the gradient of, the SHA-256 of its values, and the
values. One that holds anything else, or is no ordinary file, is passed over and noted.
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
from testbed.payloads import Vector

COMPUTED, REUSED, REFUSED = "computed", "reused", "refused"
"""Folders in that of a run: the gradients that it has computed, links to those it reused, and what
was wrong with those that it found and could not use."""

_HASH_BYTES = hashlib.sha256().digest_size
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Reuse(NamedTuple):
    """Where a run finds gradients and writes its own.

    Attributes:
        folder: holds a folder of each run that has any.
        run: the run's name.
        most_bytes: what its own folder may hold, links as well.
    """

    folder: Path
    run: str
    most_bytes: int

    def open(self, network: str, *, processes: int) -> Gradients:
        """Those of one process of several, which share what room is left.

        Args:
            network: tells networks apart.
            processes: how many the run has.
        """
        own = self.folder / self.run
        for part in (COMPUTED, REUSED, REFUSED):
            (own / part).mkdir(parents=True, exist_ok=True)
        others = [one / part for one in self.folder.iterdir() for part in (COMPUTED, REUSED)]
        others = [one for one in others if one.parent != own]
        return Gradients(own, others, network.encode(), self.most_bytes // processes)


@dataclass
class Gradients:
    """The gradients of one network, those of a run and of others, to one of its processes.

    Attributes:
        own: the run's folder.
        others: folders with gradients of others.
        network: goes into the name of each.
        room: bytes that may still be written or linked.
    """

    own: Path
    others: Sequence[Path]
    network: bytes
    room: int

    def gradient(
        self, at: Vector, images: Images, targets: Targets, compute: Callable[[], Vector]
    ) -> Vector:
        """The gradient of a batch at the parameters ``at``: one that is there, or else computed."""
        name = self._name(at, images, targets)
        for folder in self.others:
            try:
                gradient = _read(folder / name, bytes.fromhex(name), size=at.size)
                taken = 2 * _HASH_BYTES + gradient.nbytes
                if taken <= self.room:
                    os.link(folder / name, self.own / REUSED / name)
                    self.room -= taken
            except FileNotFoundError:
                continue  # not computed there, or dropped meanwhile
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
        """Write a gradient down for other runs; nothing more is written once the disk is full."""
        unfinished = self.own / f"{name}.new"
        try:
            with unfinished.open("xb") as file:
                file.write(bytes.fromhex(name) + hashlib.sha256(gradient.data).digest())
                file.write(gradient.data)
        except FileExistsError:
            return  # another process writes it, or one that was killed has
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            unfinished.unlink()
            self.room = 0
            return
        unfinished.rename(self.own / COMPUTED / name)
        self.room -= 2 * _HASH_BYTES + gradient.nbytes


def _read(path: Path, identity: bytes, *, size: int) -> Vector:
    """The entry of this identity with so many values.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is a link, or not ours to read.
        ValueError: it is something else.
    """
    descriptor = os.open(path, _LOOK)
    try:
        found, length = os.fstat(descriptor), 2 * _HASH_BYTES + 4 * size
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("found no ordinary file")
        if found.st_size != length:
            raise ValueError(f"found {found.st_size} bytes, expected {length}")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            head = file.read(2 * _HASH_BYTES)
            gradient = np.fromfile(file, np.float32)
    finally:
        os.close(descriptor)
    if head[:_HASH_BYTES] != identity:
        raise ValueError("found the gradient of something else")
    if head[_HASH_BYTES:] != hashlib.sha256(gradient.data).digest():
        raise ValueError("found other values than were written: its SHA-256 is another")
    return gradient


def refused(own: Path) -> list[str]:
    """What was wrong with the gradients that a run found and computed again."""
    return [path.read_text() for path in sorted((own / REFUSED).glob("*"))]


def count_reused(own: Path) -> int:
    """How many gradients a run has reused, as far as there was room to link them."""
    return sum(1 for _ in (own / REUSED).glob("*"))
