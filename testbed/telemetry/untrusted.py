"""Opens and reads files that an untrusted node may have written.

In place of its record a node can put a link, a pipe, or an endless file, and the reader may be
root. So no link is followed in any part of the path, only regular files are opened, no call blocks,
and reads are limited.
"""

from __future__ import annotations

import os
import stat
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
    if ".." in path.relative_to(root).parts:
        raise ValueError(f"{path} points outside {root}")
    for place in reversed([one for one in path.parents if one.is_relative_to(root)]):
        _require(place, stat.S_IFDIR, node)
    _require(path, stat.S_IFREG, node)
    flags = os.O_NOFOLLOW | os.O_NONBLOCK  # it may be replaced just now
    return open(path, "rb", buffering=0, opener=lambda name, mode: os.open(name, mode | flags))


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


def _require(path: Path, kind: int, node: str) -> None:
    found = stat.S_IFMT(path.lstat().st_mode)
    if found != kind:
        what = f"{_KINDS.get(found, 'a device')}, expected {_KINDS[kind]}"
        raise SpoiledError(path, node, what)
