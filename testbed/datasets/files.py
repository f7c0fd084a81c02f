"""Finds the source files of a data set: in the user's folder, in the cache, or by download.

Checksums are those of the uncompressed content if known, so that they do not depend on the
compression. That is why this module checks files instead of pooch, which compares the compressed
file, and replaces a damaged file instead of reporting it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import DataError

SECONDS_WITHOUT_DATA = 30

MOST_BYTES = 512 * 2**20
"""Twice the uncompressed size of the largest known file."""


@dataclass(frozen=True)
class SourceFile:
    """One source file.

    Attributes:
        name: name without ``.gz``; the file may be compressed or not.
        sha256: checksum of the uncompressed content.
        packed: whether the checksum is that of the compressed file, if no other is known. Then the
            file must be compressed.
    """

    name: str
    sha256: str
    packed: bool = False

    def read(self, path: Path, *, shown: str = "") -> bytes:
        """Read the uncompressed content and check it; errors name the file as ``shown``.

        Raises:
            DataError: it cannot be read or uncompressed, or has another checksum.
        """
        name = shown or str(path)
        if self.packed:
            _compare(_read(path), self.sha256, file=name, where="compressed file")
        content = uncompressed(path, shown=name)
        if not self.packed:
            _compare(content, self.sha256, file=name, where="uncompressed content")
        return content


@dataclass(frozen=True)
class Archive:
    """A tar archive, compressed or not.

    Attributes:
        name: name without ``.gz``.
        members: the files to read from it, by path, with the sha256 of each.
    """

    name: str
    members: Mapping[str, str]
    packed = False

    def read(self, path: Path, *, shown: str = "") -> list[bytes]:
        """Read and check the members, in the order of ``members``.

        Raises:
            DataError: it is not an archive, or a member is missing or has another checksum.
        """
        name = shown or str(path)
        content, found = uncompressed(path, shown=name), []
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
                for member, sha256 in self.members.items():
                    file = archive.extractfile(member)
                    found.append(b"" if file is None else file.read())
                    _compare(found[-1], sha256, file=name, where=member)
        except (tarfile.TarError, KeyError) as error:
            what = str(error).strip("'\"")
            raise damaged(name, "archive", what, "a complete tar archive") from error
        return found


@dataclass(frozen=True)
class FileLocations:
    """Locations of the files of one data set, in search order.

    Attributes:
        dataset: name of the data set and of its folders.
        given: the folder from ``TESTBED_DATA``, or None.
        downloads: the folder in the cache for downloads.
        urls: base URLs, to which a file's name plus ``.gz`` is appended; tried in this order.
        shared: whether files may be in ``given`` itself, not only in its ``dataset`` folder.
    """

    dataset: str
    given: Path | None
    downloads: Path
    urls: Sequence[str]
    shared: bool = True

    @classmethod
    def of(
        cls,
        dataset: str,
        cache: Path,
        *,
        environment: Mapping[str, str],
        urls: Sequence[str],
        shared: bool = True,
    ) -> FileLocations:
        """Create the default locations.

        Raises:
            DataError: ``TESTBED_DATA`` is set to something other than a folder.
        """
        value = environment.get("TESTBED_DATA")
        given = Path(value) if value else None
        if given is not None and not given.is_dir():
            raise DataError(
                f"TESTBED_DATA is {value}, which is not a readable folder.",
                hint="Set it to a folder of data sets, or unset it.",
            )
        return cls(dataset, given, cache / dataset, urls, shared)

    def given_file(self, file: SourceFile | Archive) -> Path | None:
        """Return the file in the folder from ``TESTBED_DATA``, if it exists."""
        return _find(file, *self._given())

    def find(self, file: SourceFile | Archive) -> Path:
        """Return the path of the file; download it if it does not exist.

        Raises:
            DataError: it does not exist and cannot be downloaded; the error says how to fix it.
        """
        here = _find(file, *self._given(), self.downloads)
        if here is not None:
            return here
        target, failures = self.downloads / f"{file.name}.gz", []
        for url in (f"{base}/{target.name}" for base in self.urls):
            try:
                return _download(url, file, target)
            except DataError as error:
                failures.append(error.message)
            except OSError as error:
                failures.append(f"{url}: {error}")
        given = ", ".join(map(str, self._given())) or "$TESTBED_DATA, which is not set,"
        raise DataError(
            f"{self.dataset}: no {file.name}, compressed{'' if file.packed else ' or not'}, in "
            f"{given} or {self.downloads}; and the download failed: {'; '.join(failures)}.",
            hint="Set TESTBED_DATA to a folder that has it, or fetch it yourself: "
            f"curl -fL --create-dirs -o {target} {self.urls[0]}/{target.name}",
        )

    def _given(self) -> list[Path]:
        if self.given is None:
            return []
        return [self.given / self.dataset, *([self.given] if self.shared else [])]


def damaged(file: str, where: str, found: str, expected: str) -> DataError:
    """Return the error for a damaged file."""
    return DataError(
        f"{file}: {where}: found {found}, expected {expected}; the file is damaged.",
        hint="Replace it with a good copy, or remove it so that it is downloaded.",
    )


def uncompressed(path: Path, *, shown: str = "", most_bytes: int = MOST_BYTES) -> bytes:
    """Read a file that may be compressed with gzip; errors name it as ``shown``.

    Raises:
        DataError: it cannot be read or uncompressed, is not a regular file, or exceeds
            ``most_bytes``, compressed or uncompressed.
    """
    content, name = _read(path, most_bytes), shown or str(path)
    if content[:2] != b"\x1f\x8b":
        if path.suffix == ".gz":
            raise damaged(name, "byte 0", repr(content[:2]), "a gzip file")
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            unpacked = packed.read(most_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(name, "gzip", str(error), "a complete gzip file") from error
    return _bounded(unpacked, most_bytes, name=name, what="uncompressed content")


def _read(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise damaged(str(path), "type", "a folder or a special file", "a regular file")
        with path.open("rb") as file:
            return _bounded(file.read(most_bytes + 1), most_bytes, name=str(path), what="file")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def _bounded(content: bytes, most_bytes: int, *, name: str, what: str) -> bytes:
    if len(content) > most_bytes:
        raise damaged(name, what, "more bytes", f"at most {most_bytes:,}")
    return content


def _compare(content: bytes, sha256: str, *, file: str, where: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise damaged(file, where, f"sha256 {found}", sha256)


def _find(file: SourceFile | Archive, *folders: Path) -> Path | None:
    names = (f"{file.name}.gz",) if file.packed else (file.name, f"{file.name}.gz")
    candidates = (folder / name for folder in folders for name in names)
    return next((path for path in candidates if os.path.lexists(path)), None)


def _download(url: str, file: SourceFile | Archive, target: Path) -> Path:
    """Download and check a file; only valid content gets its final name in the cache."""
    import pooch

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as folder:
        part = Path(folder) / target.name
        pooch.HTTPDownloader(timeout=SECONDS_WITHOUT_DATA)(url, str(part), None)
        file.read(part, shown=url)
        part.rename(target)
    return target
