"""Texts as samples: windows of characters, each of which is to be predicted from those before.

A window of length T at i has the characters i .. i + T - 1 as input and i + 1 .. i + T as targets.
Windows of one text start ``step`` characters apart, and the last one ends with the text; a text of
fewer than T + 1 characters is one window, padded to T: with token 0 in the input, and
``NOT_COUNTED`` as target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.datasets.prepared import Prepared, Tokens
from testbed.values.samples import NOT_COUNTED


@dataclass(frozen=True)
class Windows:
    """How a text becomes samples.

    Attributes:
        length: characters of a window, T.
        step: characters from one window to the next.
        last: whether only the last character of a window is a target.
    """

    length: int
    step: int
    last: bool = False

    def count(self, characters: int) -> int:
        """Return the number of windows of a text with this many characters; 0 below two."""
        if characters < 2:
            return 0
        return 1 + max(0, -(-(characters - 1 - self.length) // self.step))

    def of(self, text: NDArray[np.int32]) -> tuple[Tokens, NDArray[np.int64]]:
        """Return inputs and targets of a text of tokens, each of shape (windows, length)."""
        if (missing := self.length + 1 - len(text)) > 0:
            inputs = np.pad(text[:-1], (0, missing))[None]
            next_ones = np.pad(text[1:], (0, missing), constant_values=NOT_COUNTED)[None]
        else:
            starts = np.arange(self.count(len(text))) * self.step
            starts[-1] = len(text) - 1 - self.length
            at = starts[:, None] + np.arange(self.length)
            inputs, next_ones = text[at], text[at + 1]
        targets = next_ones.astype(np.int64)
        if self.last:
            counted = (targets != NOT_COUNTED).cumsum(axis=1)
            targets[counted < counted[:, -1:]] = NOT_COUNTED
        return inputs.astype(np.int32), targets


def prepared_texts(
    texts: Sequence[str], windows: Windows, *, test: float, source: Mapping[str, str]
) -> Prepared:
    """Return the data set of some texts: the end of each is for testing.

    Tokens are the characters that occur, in the order of Unicode. A text whose parts have fewer
    than two characters each has no samples, and is no user.

    Args:
        texts: one for each user; at least one has samples in both parts.
        windows: how they become samples.
        test: share of the characters for testing.
        source: for the record.
    """
    known = sorted(set("".join(texts)))
    number = {character: token for token, character in enumerate(known)}
    halves: tuple[list[tuple[Tokens, NDArray[np.int64]]], ...] = ([], [])
    users: list[int] = []
    for text in texts:
        tokens = np.array([number[character] for character in text], np.int32)
        parts = np.split(tokens, [len(tokens) - round(test * len(tokens))])
        for half, part in zip(halves, parts, strict=True):
            if len(part) > 1:
                half.append(windows.of(part))
        if len(parts[0]) > 1:
            users.append(windows.count(len(parts[0])))
    train, test_set = ([np.concatenate(one) for one in zip(*half, strict=True)] for half in halves)
    return Prepared(
        *(train[0], train[1], test_set[0], test_set[1]),
        classes=len(known),
        source={**source, "tokens": "".join(known)},
        train_users=np.repeat(np.arange(len(users)), users),
    )
