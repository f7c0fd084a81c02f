"""Texts as samples, by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.datasets import Prepared, Text, load
from testbed.datasets.made_text import speech
from testbed.datasets.windows import Windows, prepared_texts
from testbed.errors import ScenarioError
from testbed.values.samples import NOT_COUNTED
from testbed.values.seeds import stream

X = NOT_COUNTED
TEXT = np.arange(7, dtype=np.int32)


def test_windows_by_hand() -> None:
    inputs, targets = Windows(length=3, step=3).of(TEXT)
    assert inputs.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert targets.tolist() == [[1, 2, 3], [4, 5, 6]]
    inputs, _ = Windows(length=4, step=1).of(TEXT)
    assert inputs.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    inputs, targets = Windows(length=4, step=4).of(TEXT)
    assert inputs.tolist() == [[0, 1, 2, 3], [2, 3, 4, 5]]  # the last one ends with the text
    assert targets.tolist() == [[1, 2, 3, 4], [3, 4, 5, 6]]


def test_a_short_text_is_padded_and_the_last_character_only() -> None:
    inputs, targets = Windows(length=5, step=5).of(TEXT[:3])
    assert inputs.tolist() == [[0, 1, 0, 0, 0]]
    assert targets.tolist() == [[1, 2, X, X, X]]
    _, targets = Windows(length=5, step=5, last=True).of(TEXT[:3])
    assert targets.tolist() == [[X, 2, X, X, X]]
    _, targets = Windows(length=3, step=3, last=True).of(TEXT)
    assert targets.tolist() == [[X, X, 3], [X, X, 6]]


@pytest.mark.parametrize("length", [1, 3, 5])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_the_number_of_windows_is_that_made(length: int, step: int) -> None:
    windows = Windows(length, step)
    for characters in range(2, 20):
        inputs, _ = windows.of(np.zeros(characters, np.int32))
        assert inputs.shape == (windows.count(characters), length)
    assert windows.count(1) == 0


def test_the_end_of_each_text_is_for_testing() -> None:
    data = prepared_texts(["abab", "c", "cbcb"], Windows(3, 3), test=0.5, source={})
    assert data.classes == 3
    assert data.train_images.tolist() == [[0, 0, 0], [2, 0, 0]]
    assert data.train_labels.tolist() == [[1, X, X], [1, X, X]]
    assert data.test_labels.tolist() == [[1, X, X], [1, X, X]]
    assert data.train_users is not None
    assert data.train_users.tolist() == [0, 1]  # "c" has no next character


def read(folder: Path, text: str | bytes, **options: Any) -> Prepared:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "play.txt").write_bytes(content)
    config = Text.model_validate({"name": "text", "file": "./play.txt", **options})
    return load(config.prepare(folder / "cache", environment={}, folder=folder))


PLAY = """A scene.
ANN:
abc

BOB: \r
cb
ANN:
a: b
"""


def test_each_speaker_is_a_user(tmp_path: Path) -> None:
    """ANN says "abc", a line, "a: b", a line: nine characters; BOB "cb" and a line."""
    data = read(tmp_path, PLAY, speakers=True, length=4, test=0.3)
    known = data.source["tokens"]
    assert known == "\n :abc"
    shown = ["".join(known[token] for token in row) for row in data.train_images.tolist()]
    assert shown == ["abc\n", "bc\na", "c\n\n\n"]  # of "abc\na:", and of "cb"
    assert data.train_labels[2].tolist() == [known.index("b"), X, X, X]
    assert data.train_users is not None
    assert data.train_users.tolist() == [0, 0, 1]


def test_without_speakers_there_is_one_user(tmp_path: Path) -> None:
    data = read(tmp_path, "\ufeffäöäöäöäöäö\r\n", length=4, test=0.2)
    assert data.source["tokens"] == "\näö"
    assert data.train_users is not None
    assert set(data.train_users.tolist()) == {0}


def test_the_options_identify_a_data_set(tmp_path: Path) -> None:
    every = read(tmp_path, "to be or not to be", length=4)
    last = read(tmp_path, "to be or not to be", length=4, predict="last")
    assert (every.train_labels != X).all()
    assert ((last.train_labels != X).sum(axis=1) == 1).all()
    overlapping = read(tmp_path, "to be or not to be", length=4, step=1)
    assert len(overlapping.train_images) == 12


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("ab\nc", {}, "found 4 characters, expected a longer text"),
        ("abc" * 9, {"speakers": True}, "found no speakers, expected lines with a name and a col"),
        (b"ab\n\xff", {}, r"play.txt:2: dataset: found the byte 0xff, expected text in UTF-8"),
        (
            "ab" * 40_000,
            {"length": 65_536, "step": 1},
            "found 6,465 samples of 65,536 characters, expected at most 2,048: a larger `step`",
        ),
    ],
)
def test_texts_that_do_not_fit(
    tmp_path: Path, text: str | bytes, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ScenarioError, match=expected):
        read(tmp_path, text, **options)


def test_a_text_that_does_not_exist(tmp_path: Path) -> None:
    config = Text(name="text", file="none.txt")
    with pytest.raises(ScenarioError, match=r"none.txt: No such file.*expected a text file"):
        config.prepare(tmp_path / "cache", environment={}, folder=tmp_path)


def test_sentences_follow_the_grammar_and_speakers_have_words_of_their_own() -> None:
    sentence = re.compile(
        r"(\w+, )?the (\w+) (\w+) (\w+) a (\w+)( (by|in|at|near|under) [\w ]+)?[.!?]"
    )
    likes = []
    for speaker in ("0", "1"):
        lines = speech(stream(0, "made-text", speaker)).splitlines()
        assert len(lines) == 60
        found = [sentence.fullmatch(line) for line in lines]
        likes.append({one[2] for one in found if one is not None})
        assert all(found)
        assert len({line[-1] for line in lines}) == 1
        assert len(likes[-1]) == 6
    assert likes[0] != likes[1]
