"""Copies files into a container's volumes, as the engine's API takes them: as tar archives."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from testbed.telemetry.files import replacing

if TYPE_CHECKING:
    from docker import APIClient

ROOT = 0
FILE_MODE = 0o644
PIECE = 2**20

MODELS = "*.safetensors"


def put_folder(
    engine: APIClient,
    container: str,
    folder: Path,
    *,
    but: Collection[str] = (),
    empty: Collection[str] = (),
) -> None:
    """Copy the content of a folder to the same path in a container, owned by root.

    Args:
        engine: the container's.
        container: its name or identity.
        folder: on this host.
        but: names in the folder that are left out.
        empty: paths of folders to make there, each after that in which it is.
    """
    with tempfile.TemporaryFile() as file:
        with _Copies.open(fileobj=file, mode="w") as archive:
            for path in sorted(folder.iterdir()):
                if path.name not in but:
                    archive.add(path, path.name, filter=_of_root)
            for name in empty:
                made = tarfile.TarInfo(name)
                made.type, made.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(made)
        file.seek(0)
        engine.put_archive(container, str(folder), file)


def packed(folder: Path, *, also: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield a tar archive of a folder's files, then of those in ``also``; all may read them."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            yield from _entry(path.name, path.stat().st_size, iter(partial(file.read, PIECE), b""))
    for name, content in also.items():
        yield from _entry(name, len(content), [content])
    yield tarfile.NUL * 2 * tarfile.BLOCKSIZE


def _entry(name: str, size: int, content: Iterable[bytes]) -> Iterator[bytes]:
    made = tarfile.TarInfo(name)
    made.size, made.mode = size, FILE_MODE
    yield made.tobuf()
    yield from content
    yield tarfile.NUL * (-size % tarfile.BLOCKSIZE)


def put_empty(engine: APIClient, container: str, files: Iterable[Path]) -> None:
    """Create empty files, all in one folder, which every user may read."""
    content = io.BytesIO()
    paths = tuple(files)
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in paths:
            made = tarfile.TarInfo(path.name)
            made.mode = FILE_MODE
            archive.addfile(made)
    engine.put_archive(container, str(paths[0].parent), content.getvalue())


def get_file(engine: APIClient, container: str, path: Path) -> bytes:
    """Return the content of a file in a container in any state."""
    pieces, _ = engine.get_archive(container, str(path))
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        file = archive.extractfile(archive.getmembers()[0])
        return b"" if file is None else file.read()


def get_models(engine: APIClient, container: str, folder: Path) -> None:
    """Copy the models in a folder of a container in any state to the same folder on this host.

    Nodes may have written other files there, or something not regular.
    """
    pieces, _ = engine.get_archive(container, str(folder))
    with tempfile.TemporaryFile() as content:
        content.writelines(pieces)
        content.seek(0)
        with tarfile.open(fileobj=content) as archive:
            for member in archive:
                inside, name = PurePath(member.name).parent, PurePath(member.name).name
                if inside != PurePath(folder.name) or not PurePath(name).match(MODELS):
                    continue
                if member.isreg() and (file := archive.extractfile(member)):
                    with replacing(folder / name) as fresh, fresh.open("wb") as copy:
                        shutil.copyfileobj(file, copy)


class _Copies(tarfile.TarFile):
    """An archive of every file's content, also where two are names of one (hard links)."""

    def gettarinfo(self, *args: Any, **named: Any) -> tarfile.TarInfo:
        self.inodes: dict[Any, str] = {}
        return super().gettarinfo(*args, **named)


def _of_root(one: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out sockets and the like."""
    one.uid = one.gid = ROOT
    return one if one.isreg() or one.isdir() or one.issym() else None
