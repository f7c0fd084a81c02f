"""What a role needs of the file system to go on importing with another uid and other mounts.

Two things can hide it. A folder on the way may be closed to others: an interpreter in a home folder
of mode 0700. And a folder may be covered in a node, as /tmp is by the node's own. Either way the
folder gets a tmpfs over it, and what is needed is mounted again at its own path.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Cover:
    """A folder that is covered by a tmpfs in a node.

    Attributes:
        trees: files and folders below it that are mounted there again, read-only; none lies in
            another.
        links: symbolic links below it that are made there again: their paths and targets.
    """

    folder: Path
    trees: tuple[Path, ...] = ()
    links: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True)
class Trail:
    """How the kernel gets from / to a path.

    Attributes:
        folders: every folder on the way, without the end.
        links: every symbolic link on the way, and what it says.
    """

    folders: tuple[Path, ...]
    links: tuple[tuple[Path, str], ...]
    end: Path

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
        return cls(tuple(dict.fromkeys(folders)), tuple(links), here)


@dataclass(frozen=True)
class Needs:
    """The ways to what an interpreter uses.

    Attributes:
        must: to paths that have to be readable in a node.
        may: to those that are left out where they are closed themselves.
    """

    must: tuple[Trail, ...]
    may: tuple[Trail, ...]

    @classmethod
    def of(cls, must: Iterable[Path], may: Iterable[Path] = ()) -> Needs:
        """Follow the paths; OSError if one is missing."""
        return cls(tuple(map(Trail.to, must)), tuple(map(Trail.to, may)))


def find_needs() -> Needs:
    """What this interpreter cannot do without, and where else it looks for modules.

    That is not the clone that the package may lie in: it holds more, such as folders of runs.
    """
    must = (Path(sys.executable), Path(sys.prefix), Path(sys.base_prefix), PACKAGE)
    may = [path for entry in sys.path if entry and (path := Path(entry).absolute()).exists()]
    root = PACKAGE.parent
    is_clone = (root / "pyproject.toml").exists()
    return Needs.of(must, (path for path in may if not (is_clone and path == root)))


def find_covers(covered: Iterable[Path], uid: int, needs: Needs) -> tuple[Cover, ...]:
    """What has to be covered for a uid, and what has to be mounted there again.

    Args:
        covered: folders that are covered anyway.
        uid: of the role; its groups are those of nobody.
        needs: what the interpreter uses.

    Raises:
        HostError: a path that it must have is closed to others; only its owner can change that.
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
            f"{end} is closed to other users, and nodes run as users of their own.",
            hint=f"Open it: chmod -R go+rX {end}",
        )


def _cover(folder: Path, trails: list[Trail]) -> Cover:
    ends = {trail.end for trail in trails if folder in trail.end.parents}
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
    """The three bits that apply to the uid."""
    status = path.stat()
    return (status.st_mode >> 6 if status.st_uid == uid else status.st_mode) & 0o7


def _is_traversable(folder: Path, uid: int) -> bool:
    return bool(_permissions(folder, uid) & 0o1)


def _is_open(path: Path, uid: int) -> bool:
    needed = 0o5 if path.is_dir() else 0o4
    return _permissions(path, uid) & needed == needed
