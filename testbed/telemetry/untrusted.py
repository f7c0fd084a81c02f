"""Opens and reads files that an untrusted node may have written.

In place of its record a node can put a link, a pipe, or an endless file, and the reader may be
root. So no link is followed in any part of the path, only regular files are opened, no call blocks,
and reads are limited.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from testbed.errors import NodeError

_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
}
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class SpoiledError(NodeError):
    """A node has left something that is not its record; names the node."""

    def __init__(self, path: Path, node: str, what: str) -> None:
        super().__init__(
            f"{path}: found {what}, written by {node}.",
            hint=f"A program in {node} caused this, most likely custom code. The controller's own "
            "records are in the other files of the run folder.",
        )


def open_untrusted(path: Path, *, node: str, folder: Path | None = None) -> BinaryIO:
    """Open a file that a node may have written.

    Args:
        path: the file.
        node: the node that can write there; a list of names if there are several.
        folder: the folder that the node can write to but not replace; by default the file's own.

    Raises:
        FileNotFoundError: the file does not exist.
        PermissionError: it is not readable for us.
        SpoiledError: it is not a regular file, or a folder on the path is a link; names the node.
    """
    root = path.parent if folder is None else folder
    with ExitStack() as held:
        place = _look(root, None, held)
        *folders, last = path.relative_to(root).parts
        reached = root
        for name in (*folders, last):
            if name == "..":
                raise ValueError(f"{path} points outside {root}")
            _require(place, stat.S_IFDIR, reached, node)
            place, reached = _look(name, place, held), reached / name
        _require(place, stat.S_IFREG, path, node)
        return Path(f"/proc/self/fd/{place}").open("rb", buffering=0)


def read_untrusted(path: Path, *, node: str, most: int, folder: Path | None = None) -> bytes:
    """Read a file that a node may have written; see ``open_untrusted``.

    Raises:
        SpoiledError: also if it is longer than ``most`` bytes.
    """
    with open_untrusted(path, node=node, folder=folder) as file:
        return read_on(file, path, node=node, most=most)


def read_on(file: BinaryIO, path: Path, *, node: str, most: int) -> bytes:
    """Read a file from its position on; see ``read_untrusted``, also for the limit.

    The limit applies to the whole file, including what lies before the position.
    """
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise SpoiledError(path, node, f"{size:,} bytes, expected at most {most:,}")
    left = max(0, size - file.tell())
    data = bytearray()
    while left and (part := file.read(left)):
        data += part
        left -= len(part)
    return bytes(data)


def _require(place: int, kind: int, path: Path, node: str) -> None:
    found = stat.S_IFMT(os.fstat(place).st_mode)
    if found != kind:
        what = f"{_KINDS.get(found, 'a device')}, expected {_KINDS[kind]}"
        raise SpoiledError(path, node, what)


def _look(name: str | Path, place: int | None, held: ExitStack) -> int:
    """Open a descriptor for inspection only, without reading; closed with ``held``."""
    descriptor = os.open(name, _LOOK, dir_fd=place)
    held.callback(os.close, descriptor)
    return descriptor
