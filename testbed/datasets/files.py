"""Finds the files a data set is made of: in a folder of the user's, in the cache, by download.

Sums are those of the uncompressed content, so that it does not matter who compressed a file. A
damaged file is an error where it is found; the search does not go on behind its back.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.datasets.idx import damaged
from testbed.errors import DataError

SECONDS_WITHOUT_DATA = 30


@dataclass(frozen=True)
class SourceFile:
    """A file, named without ``.gz`` though it may lie there either way, and its content's sum."""

    name: str
    sha256: str

    def check(self, content: bytes, *, file: str) -> None:
        """Compare uncompressed content with the sum.

        Raises:
            DataError: it is another.
        """
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise damaged(file, "uncompressed content", f"sha256 {found}", self.sha256)


@dataclass(frozen=True)
class Places:
    """Where the files of one data set may be, in the order they are looked for.

    Attributes:
        dataset: its name, which is that of its folders too.
        given: the folder that ``TESTBED_DATA`` names, or None.
        downloads: the folder in the cache, into which downloads go.
        urls: what a file's name plus ``.gz`` is appended to, tried in this order.
    """

    dataset: str
    given: Path | None
    downloads: Path
    urls: Sequence[str]

    @classmethod
    def of(
        cls, dataset: str, cache: Path, *, environment: Mapping[str, str], urls: Sequence[str]
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
        return cls(dataset, given, cache / dataset, urls)

    def given_file(self, file: SourceFile) -> Path | None:
        """The file in the folder that ``TESTBED_DATA`` names, if it is there."""
        if self.given is None:
            return None
        return _in(self.given / self.dataset, file) or _in(self.given, file)

    def find(self, file: SourceFile) -> Path:
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
            f"{self.dataset}: no {file.name}, compressed or not, in {self._looked()}; "
            f"and the download failed: {'; '.join(failures)}.",
            hint="Set TESTBED_DATA to a folder that has it, or fetch it yourself: "
            f"curl -fL --create-dirs -o {self.downloads / file.name}.gz "
            f"{self.urls[0]}/{file.name}.gz",
        )

    def _looked(self) -> str:
        given = "$TESTBED_DATA, which is not set,"
        if self.given is not None:
            given = f"{self.given / self.dataset}, {self.given}"
        return f"{given} or {self.downloads}"

    def _download(self, url: str, file: SourceFile) -> Path:
        """Download and check; only good content gets its name in the cache."""
        import pooch

        self.downloads.mkdir(parents=True, exist_ok=True)
        target = self.downloads / f"{file.name}.gz"
        with tempfile.TemporaryDirectory(dir=self.downloads, prefix=".") as folder:
            part = Path(folder) / target.name
            pooch.HTTPDownloader(timeout=SECONDS_WITHOUT_DATA)(url, str(part), None)
            file.check(uncompressed(part, shown=url), file=url)
            part.rename(target)
        return target


def uncompressed(path: Path, *, shown: str = "") -> bytes:
    """The content of a file that may be compressed with gzip; errors show its name as ``shown``.

    Raises:
        DataError: it cannot be read or uncompressed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if content[:2] != b"\x1f\x8b":
        if path.suffix == ".gz":
            raise damaged(shown or str(path), "byte 0", repr(content[:2]), "a gzip file")
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(shown or str(path), "gzip", str(error), "a whole gzip file") from error


def _in(folder: Path, file: SourceFile) -> Path | None:
    for name in (file.name, f"{file.name}.gz"):
        if os.path.lexists(folder / name):
            return folder / name
    return None
