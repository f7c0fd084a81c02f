"""A made play: sentences of thirty speakers, drawn from a grammar of everyday words.

A speaker's sentence is

    [interjection,] article adjective noun verb article noun [place] end

such as "well, the old ship finds a lamp by the river!". Each speaker has words of its own: two
interjections, six adjectives, six nouns, four verbs, two places and an end, drawn from all. So the
speakers differ in what they say, and agree in how words and sentences are formed. Every draw is
fixed: the text is the same everywhere.

A sample is a window of 40 characters, and its targets are the characters that follow each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from testbed.datasets.base import DatasetConfig
from testbed.datasets.prepared import Prepared, prepare_once
from testbed.datasets.windows import Windows, prepared_texts
from testbed.values.seeds import stream

SPEAKERS = 30
SENTENCES = 60
"""Sentences of each speaker."""
LENGTH = 40
TOKENS = 29
"""Different characters: 23 letters, the space, the end of a line, and `,` `.` `!` `?`."""

Words = Sequence[str]

SAYS: Words = ("well", "oh", "indeed", "alas", "come", "friends", "perhaps", "truly")
LIKE: Words = ("old", "small", "bright", "quiet", "red", "slow", "young", "broken", "heavy", "kind")
THINGS: Words = ("ship", "lamp", "house", "letter", "road", "garden", "bell", "horse", "window")
DOES: Words = ("finds", "keeps", "sees", "takes", "loses", "brings", "follows", "hides")
WHERE: Words = ("by the river", "in the rain", "at night", "near the gate", "under a tree")
ENDS = ".!?"


class MadeText(DatasetConfig):
    """Sentences of thirty made speakers, 29 characters, each predicted from those before."""

    images = ((LENGTH,), TOKENS)
    input_type = "tokens"
    targets = "tokens"

    name: Literal["made-text"]

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        return prepare_once(cache / "prepared" / "made-text-1", _make)


def speech(rng: np.random.Generator) -> str:
    """Draw what one speaker says: sentences, a line each."""

    def own(words: Words, count: int) -> list[str]:
        return [words[i] for i in rng.choice(len(words), count, replace=False)]

    says, like, does, where = own(SAYS, 2), own(LIKE, 6), own(DOES, 4), own(WHERE, 2)
    things, end = own(THINGS, 6), ENDS[rng.integers(len(ENDS))]

    def one(words: Words) -> str:
        return words[int(rng.integers(len(words)))]

    lines = []
    for _ in range(SENTENCES):
        first = f"{one(says)}, " if rng.random() < 0.3 else ""
        last = f" {one(where)}" if rng.random() < 0.5 else ""
        middle = f"the {one(like)} {one(things)} {one(does)} a {one(things)}"
        lines.append(f"{first}{middle}{last}{end}\n")
    return "".join(lines)


def _make() -> Prepared:
    texts = [speech(stream(0, "made-text", str(speaker))) for speaker in range(SPEAKERS)]
    source = {"name": "made-text", "of": "a grammar"}
    return prepared_texts(texts, Windows(LENGTH, LENGTH), test=0.1, source=source)
