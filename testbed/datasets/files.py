"""Finds the files a data set is made of: in a folder of the user's, in the cache, by download.

Sums are those of the uncompressed content where they are known, so that it does not matter who
compressed a file. A damaged file is an error where it is found; the search does not go on behind
its back.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.datasets.idx import damaged
from testbed.errors import DataError

SECONDS_WITHOUT_DATA = 30

MOST_BYTES = 512 * 2**20
"""Twice what the largest file that is known here takes, uncompressed."""


@dataclass(frozen=True)
class SourceFile:
    """One file.

    Attributes:
        name: without ``.gz``; a file may lie there either way.
        sha256: of the uncompressed content.
        packed: whether the sum is of the compressed file instead, as no other is known. Then it
            may lie there compressed only.
    """

    name: str
    sha256: str
    packed: bool = False

    def content(self, path: Path, *, shown: str = "") -> bytes:
        """The uncompressed content of the file, unchecked unless the sum is of the compressed one.

        Args:
            path: where it lies.
            shown: its name for errors, if not the path.

        Raises:
            DataError: it cannot be read or uncompressed, or is another.
        """
        if self.packed:
            _compare(_read(path), self.sha256, file=shown or str(path), where="compressed file")
        return uncompressed(path, shown=shown)

    def check(self, content: bytes, *, file: str) -> None:
        """Compare uncompressed content with the sum.

        Raises:
            DataError: it is another.
        """
        if not self.packed:
            _compare(content, self.sha256, file=file, where="uncompressed content")


@dataclass(frozen=True)
class Archive:
    """A tar archive, compressed or not.

    Attributes:
        name: without ``.gz``.
        members: the files in it that are wanted, by path, and the sha256 of each.
    """

    name: str
    members: Mapping[str, str]
    packed = False

    def content(self, path: Path, *, shown: str = "") -> bytes:
        """See SourceFile."""
        return uncompressed(path, shown=shown)

    def check(self, content: bytes, *, file: str) -> None:
        """See SourceFile: every member is compared."""
        for _ in self.read(content, file=file):
            pass

    def read(self, content: bytes, *, file: str) -> Iterator[tuple[str, bytes]]:
        """The members, checked, in the order of ``members``.

        Raises:
            DataError: it is no archive, or a member is missing or another.
        """
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
                for name, sha256 in self.members.items():
                    member = archive.extractfile(name)
                    data = b"" if member is None else member.read()
                    _compare(data, sha256, file=file, where=name)
                    yield name, data
        except (tarfile.TarError, KeyError) as error:
            raise damaged(
                file, "archive", str(error).strip("'\""), "a whole tar archive"
            ) from error


Source = SourceFile | Archive


@dataclass(frozen=True)
class Places:
    """Where the files of one data set may be, in the order they are looked for.

    Attributes:
        dataset: its name, which is that of its folders too.
        given: the folder that ``TESTBED_DATA`` names, or None.
        downloads: the folder in the cache, into which downloads go.
        urls: what a file's name plus ``.gz`` is appended to, tried in this order.
        shared: whether the files may lie in ``given`` itself, not only in its folder ``dataset``.
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
    ) -> Places:
        """The usual places.

        Raises:
            DataError: ``TESTBED_DATA`` is set, but to no folder.
        """
        value = environment.get("TESTBED_DATA")
        given = Path(value) if value else None
        if given is not None and not given.is_dir():
            raise DataError(
                f"TESTBED_DATA is {value}, which is no folder that can be read.",
                hint="Set it to a folder of data sets, or unset it.",
            )
        return cls(dataset, given, cache / dataset, urls, shared)

    def given_file(self, file: Source) -> Path | None:
        """The file in the folder that ``TESTBED_DATA`` names, if it is there."""
        if self.given is None:
            return None
        own = _in(self.given / self.dataset, file)
        return own or (_in(self.given, file) if self.shared else None)

    def find(self, file: Source) -> Path:
        """Where the file is; downloads it if it is nowhere.

        Raises:
            DataError: it is nowhere and cannot be downloaded; says which, where and what to do.
        """
        here = self.given_file(file) or _in(self.downloads, file)
        if here is not None:
            return here
        failures = []
        for url in (f"{base}/{file.name}.gz" for base in self.urls):
            try:
                return self._download(url, file)
            except DataError as error:
                failures.append(error.message)
            except OSError as error:
                failures.append(f"{url}: {error}")
        raise DataError(
            f"{self.dataset}: no {file.name}, {_forms(file)}, in {self._looked()}; "
            f"and the download failed: {'; '.join(failures)}.",
            hint="Set TESTBED_DATA to a folder that has it, or fetch it yourself: "
            f"curl -fL --create-dirs -o {self.downloads / file.name}.gz "
            f"{self.urls[0]}/{file.name}.gz",
        )

    def _looked(self) -> str:
        given = "$TESTBED_DATA, which is not set,"
        if self.given is not None:
            given = f"{self.given / self.dataset}" + (f", {self.given}" if self.shared else "")
        return f"{given} or {self.downloads}"

    def _download(self, url: str, file: Source) -> Path:
        """Download and check; only good content gets its name in the cache."""
        import pooch

        self.downloads.mkdir(parents=True, exist_ok=True)
        target = self.downloads / f"{file.name}.gz"
        with tempfile.TemporaryDirectory(dir=self.downloads, prefix=".") as folder:
            part = Path(folder) / target.name
            pooch.HTTPDownloader(timeout=SECONDS_WITHOUT_DATA)(url, str(part), None)
            file.check(file.content(part, shown=url), file=url)
            part.rename(target)
        return target


def uncompressed(path: Path, *, shown: str = "", most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file that may be compressed with gzip; errors show its name as ``shown``.

    Raises:
        DataError: it cannot be read or uncompressed, is no ordinary file, or has more bytes, as it
            is or uncompressed.
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
        raise damaged(name, "gzip", str(error), "a whole gzip file") from error
    return _bounded(unpacked, most_bytes, name=name, what="uncompressed content")


def _read(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of an ordinary file; whatever else lies there is not even waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise damaged(str(path), "type", "no ordinary file", "one")
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


def _forms(file: Source) -> str:
    return "compressed" if file.packed else "compressed or not"


def _in(folder: Path, file: Source) -> Path | None:
    for name in (f"{file.name}.gz",) if file.packed else (file.name, f"{file.name}.gz"):
        if os.path.lexists(folder / name):
            return folder / name
    return None
