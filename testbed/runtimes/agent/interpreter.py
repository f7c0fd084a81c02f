"""The files that a role needs to keep importing with another uid and other mounts.

Two things can hide them. A parent folder may be closed to others: an interpreter in a home folder
of mode 0700. And a folder may be covered in a node, as /tmp is by the node's own. Either way a
tmpfs is mounted over the folder, and the needed paths are mounted again at their own paths.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError

PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cover:
    """A folder that a tmpfs covers in a node.

    Attributes:
        trees: files and folders below it that are mounted there again, read-only; none is inside
            another.
        links: symbolic links below it that are created again: their paths and targets.
    """

    folder: Path
    trees: tuple[Path, ...] = ()
    links: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True)
class Trail:
    """How the kernel resolves a path from /."""

    folders: tuple[Path, ...]  # every folder on the way, without the last component
    links: tuple[tuple[Path, str], ...]  # every symbolic link on the way, and its target
    end: Path
    above: frozenset[Path]  # the folders that contain the end; found once, not for every node

    @classmethod
    def to(cls, path: Path) -> Trail:
        """Follow an absolute path; OSError if something on the way is missing."""
        folders: list[Path] = []
        links: list[tuple[Path, str]] = []
        here, ahead = Path("/"), list(path.parts[1:])
        while ahead:
            part = ahead.pop(0)
            if part == "..":
                here = here.parent
                continue
            folders.append(here)
            step = here / part
            if not stat.S_ISLNK(step.lstat().st_mode):
                here = step
                continue
            target = str(step.readlink())
            links.append((step, target))
            here = Path("/") if target.startswith("/") else here
            ahead = [name for name in Path(target).parts if name != "/"] + ahead
        return cls(tuple(dict.fromkeys(folders)), tuple(links), here, frozenset(here.parents))


@dataclass(frozen=True)
class Needs:
    """The trails to the paths that an interpreter uses."""

    must: tuple[Trail, ...]  # to paths that must be readable in a node
    may: tuple[Trail, ...]  # to paths that are left out if they are closed themselves

    @classmethod
    def of(cls, must: Iterable[Path], may: Iterable[Path] = ()) -> Needs:
        """Follow the paths; OSError if one is missing."""
        return cls(tuple(map(Trail.to, must)), tuple(map(Trail.to, may)))


def find_needs() -> Needs:
    """Return the trails to this interpreter's required files, and to where it looks for modules.

    The clone that may contain the package is excluded: it contains more, such as run folders.
    """
    must = (Path(sys.executable), Path(sys.prefix), Path(sys.base_prefix), PACKAGE)
    may = [path for entry in sys.path if entry and (path := Path(entry).absolute()).exists()]
    root = PACKAGE.parent
    is_clone = (root / "pyproject.toml").exists()
    return Needs.of(must, (path for path in may if not (is_clone and path == root)))


def find_covers(covered: Iterable[Path], uid: int, needs: Needs) -> tuple[Cover, ...]:
    """Return what must be covered for a uid, and what must be mounted there again.

    Args:
        covered: folders that are covered anyway.
        uid: of the role; group permissions are ignored.
        needs: what the interpreter uses.

    Raises:
        HostError: a required path is closed to others; only its owner can change that.
    """
    for trail in needs.must:
        _require_open(trail.end, uid)
    trails = [*needs.must, *(trail for trail in needs.may if _is_open(trail.end, uid))]
    folders = {folder for trail in trails for folder in trail.folders}
    closed = {folder for folder in folders if not _is_traversable(folder, uid)}
    outermost = _outermost({*covered, *closed})
    return tuple(_cover(folder, trails) for folder in sorted(outermost))


def _require_open(end: Path, uid: int) -> None:
    if not _is_open(end, uid):
        raise HostError(
            f"{end} is closed to other users, but every node runs as a user of its own.",
            hint=f"Open it: chmod -R go+rX {end}",
        )


def _cover(folder: Path, trails: list[Trail]) -> Cover:
    ends = {trail.end for trail in trails if folder in trail.above}
    trees = _outermost(ends)
    links = {
        link: target
        for trail in trails
        for link, target in trail.links
        if folder in link.parents and not trees & {*link.parents}
    }
    return Cover(folder, tuple(sorted(trees)), tuple(sorted(links.items())))


def _outermost(paths: set[Path]) -> set[Path]:
    return {path for path in paths if not paths & {*path.parents}}


def _permissions(path: Path, uid: int) -> int:
    """Return the three permission bits that apply to the uid."""
    status = path.stat()
    return (status.st_mode >> 6 if status.st_uid == uid else status.st_mode) & 0o7


def _is_traversable(folder: Path, uid: int) -> bool:
    return bool(_permissions(folder, uid) & 0o1)


def _is_open(path: Path, uid: int) -> bool:
    needed = 0o5 if path.is_dir() else 0o4
    return _permissions(path, uid) & needed == needed
