"""The characters of a text file: each is predicted from those before, as by a language model.

    dataset: {text: {file: ./plays.txt, length: 80, speakers: true, partition: by_user}}

A sample is a window of ``length`` characters, and its targets are the characters that follow each
of them. ``windows.py`` says how windows are cut. The last tenth of the text is for testing.

With ``speakers``, the text is a play: a line that has only a name and a colon says who speaks until
the next such line. Each speaker is a user, whose lines are one text, without these names; blank
lines are removed. S. Caldas et al. (LEAF: a benchmark for federated settings, 2018,
arXiv:1812.01097) divide the works of Shakespeare like this, in windows with ``step: 1`` and
``predict: last``. What precedes the first name has no speaker and is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from testbed.datasets.base import DatasetConfig
from testbed.datasets.prepared import prepare_once
from testbed.datasets.windows import Windows, prepared_texts
from testbed.errors import Problem, ScenarioError

LARGEST_BYTES = 256 * 2**20
MOST_TARGETS = 2**27
"""Positions of all windows; each takes 12 bytes of memory while a text is prepared."""

SPEAKER = re.compile(r"[ \t]*(\S[^:\n]{0,79}):[ \t]*")
"""A line that says who speaks."""

Length = Annotated[int, Field(ge=1, le=65_536, strict=True)]


class Text(DatasetConfig):
    """The characters of a text file, each predicted from those before.

    Attributes:
        file: the text, in UTF-8, relative to the scenario.
        length: characters of a sample.
        step: characters from the beginning of a sample to that of the next; by default ``length``.
        predict: the targets of a sample: ``every`` next character, or only the ``last`` one.
        speakers: whether the text is a play, in which each speaker is a user.
        test: share of the text, or of each speaker's lines, at its end, for testing.
    """

    input_type = "tokens"
    targets = "tokens"

    name: Literal["text"]
    file: Annotated[str, Field(pattern=r"[^/]\.txt$")]
    length: Length = 80
    step: Length | None = None
    predict: Literal["every", "last"] = "every"
    speakers: bool = False
    test: Annotated[float, Field(gt=0, lt=1, strict=True)] = 0.1

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """Prepare the data set. Its cache key is the text with the options."""
        path = folder / self.file
        content = self._read(path)
        options = (self.length, self.step, self.predict, self.speakers, self.test)
        digest = hashlib.sha256(repr(options).encode() + content).hexdigest()[:16]
        texts = self._texts(content, path)
        windows = Windows(self.length, self.step or self.length, last=self.predict == "last")
        self._check(texts, windows, path)
        source = {"name": "text", "of": path.name, "sha256": hashlib.sha256(content).hexdigest()}
        return prepare_once(
            cache / "prepared" / f"text-1-{digest}",
            lambda: prepared_texts(texts, windows, test=self.test, source=source),
        )

    def _read(self, path: Path) -> bytes:
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST_BYTES + 1)
        except OSError as error:
            expected = "a text file, relative to the scenario's folder"
            found = f"{self.file}: {error.strerror}"
            raise ScenarioError.at("dataset.file", found, expected) from None
        if len(content) > LARGEST_BYTES:
            raise _error(path, "a larger file", f"at most {LARGEST_BYTES // 2**20} MiB")
        return content

    def _texts(self, content: bytes, path: Path) -> list[str]:
        """Return the text of each user; without speakers there is one."""
        try:
            text = content.decode().removeprefix("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            before = content.count(b"\n", 0, error.start)
            found = f"the byte 0x{content[error.start]:02x}"
            raise _error(path, found, "text in UTF-8", line=before + 1) from None
        if not self.speakers:
            return [text]
        spoken: dict[str, list[str]] = {}
        own: list[str] = []  # what no speaker says
        for line in text.split("\n"):
            if named := SPEAKER.fullmatch(line):
                own = spoken.setdefault(named[1], [])
            elif line.strip():
                own.append(f"{line}\n")
        if not spoken:
            expected = "lines with a name and a colon, such as `HAMLET:`, or `speakers: false`"
            raise _error(path, "no speakers", expected)
        return ["".join(lines) for lines in spoken.values()]

    def _check(self, texts: list[str], windows: Windows, path: Path) -> None:
        tested = [round(self.test * len(text)) for text in texts]
        parts = [[len(text) - one for text, one in zip(texts, tested, strict=True)], tested]
        counts = [sum(map(windows.count, part)) for part in parts]
        if not all(counts):
            expected = "a longer text: at least two characters for training and two for testing"
            raise _error(path, f"{sum(map(len, texts)):,} characters", expected)
        if sum(counts) * self.length > MOST_TARGETS:
            found = f"{sum(counts):,} samples of {self.length:,} characters"
            most = MOST_TARGETS // self.length
            raise _error(path, found, f"at most {most:,}: a larger `step`, or a shorter text")


def _error(path: Path, found: str, expected: str, *, line: int = 0) -> ScenarioError:
    return ScenarioError([Problem(str(path), line, "dataset", found, expected)])
