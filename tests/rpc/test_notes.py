"""Notes with text and arrays: their way over the wire, and their size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testbed.algorithms.base import Reply, Update
from testbed.algorithms.frame.record import Timing
from testbed.payloads import Dense
from testbed.payloads.notes import is_finite, note_bytes, note_flaw
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import decode_delivery, decode_push, encode_delivery, encode_push
from testbed.rpc.messages import Delivery, PushMessage
from testbed.rpc.notes import read_note
from testbed.rpc.wire import MalformedError

VALUES = np.array([1, 2], np.float32)
NOTE = {"loss": 0.5, "text": "ö", "table": np.arange(6, dtype=np.int16).reshape(2, 3)}


def test_numbers_text_and_arrays_arrive_and_count_exactly() -> None:
    """8 bytes of values, 2 of UTF-8, 12 of the table; a number is part of the head."""
    update = Update(Dense(VALUES), 3, 10, note=NOTE)
    encoded = encode_push(PushMessage(1, 1, 7, update, Timing()))
    read = decode_push(encoded.data)
    assert encoded.payload_bytes == read.payload_bytes == 8 + 2 + 12
    note: dict[str, Any] = dict(read.update.note)
    assert (note["loss"], note["text"]) == (0.5, "ö")
    np.testing.assert_array_equal(note["table"], NOTE["table"])
    assert note["table"].dtype == np.int16
    reply = encode_delivery(Delivery(Reply(Dense(VALUES), 3, note=NOTE)))
    answered = decode_delivery(reply.data).reply
    assert answered is not None
    assert note_bytes(answered.note) == reply.payload_bytes - 8 == 14


@pytest.mark.parametrize(
    ("note", "flaw"),
    [
        ({"a": np.zeros(5, np.float32)}, "20 bytes .* most_noted is 16"),
        ({"a": "seventeen letters"}, "17 bytes"),
        ({"a": [1, 2]}, "a in its note is a list"),
        ({"a": np.zeros(1, np.complex64)}, "complex64"),
        ({"a": np.zeros(1, ">f4")}, "not supported"),
    ],
)
def test_what_a_note_cannot_hold(note: Any, flaw: str) -> None:
    with pytest.raises(AssertionError, match=flaw):
        raise AssertionError(note_flaw(note, 16))


def test_what_a_note_may_hold() -> None:
    assert note_flaw({"a": 1, "b": np.float32(2), "c": np.zeros(4, np.float32)}, 16) == ""
    assert is_finite({"a": float("nan"), "c": np.zeros(4, np.int32)})  # a number may be anything
    assert not is_finite({"c": np.array([1, np.inf], np.float32)})


@pytest.mark.parametrize(
    "array",
    [
        {"type": "O", "shape": [1], "data": b"12345678"},
        {"type": "<f4", "shape": [2], "data": b"1234"},
        {"type": "<f4", "shape": [1] * 33, "data": b"1234"},
    ],
)
def test_an_array_that_is_none_is_refused(array: dict[str, Any]) -> None:
    attached = ps_pb2.Attachments(arrays={"a": ps_pb2.NamedArray(**array)})
    with pytest.raises(MalformedError, match="an array 'a'"):
        read_note(ps_pb2.ExchangeRequest(attached=attached))


def test_too_many_notes_are_refused() -> None:
    attached = ps_pb2.Attachments(text={str(number): "" for number in range(40)})
    note = {str(number): 0.0 for number in range(40)}
    with pytest.raises(MalformedError, match="80 notes"):
        read_note(ps_pb2.ExchangeRequest(note=note, attached=attached))
