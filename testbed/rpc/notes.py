"""Notes of updates and replies, as parts of their messages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from testbed.payloads.base import Array
from testbed.payloads.notes import TYPES, Note, note_bytes
from testbed.rpc._pb import ps_pb2
from testbed.rpc.wire import MalformedError

MAX_NOTES = 64


def write_note(head: Any, note: Note) -> int:
    """Write a note into an ExchangeRequest or a ModelReply; return its bytes of text and arrays."""
    for name, value in note.items():
        if isinstance(value, str):
            head.attached.text[name] = value
        elif isinstance(value, np.ndarray):
            array = head.attached.arrays[name]
            array.type, array.data = value.dtype.str, value.tobytes()
            array.shape.extend(value.shape)
        else:
            head.note[name] = value
    return note_bytes(note)


def read_note(head: Any) -> dict[str, float | str | Array]:
    """Read the note of a message.

    Raises:
        MalformedError: it has too many entries, or an array that is none.
    """
    attached = head.attached
    count = len(head.note) + len(attached.text) + len(attached.arrays)
    if count > MAX_NOTES:
        raise MalformedError(f"{count} notes, expected at most {MAX_NOTES}")
    if not count:
        return {}
    arrays = {name: _array(array, name) for name, array in attached.arrays.items()}
    return {**head.note, **attached.text, **arrays}


def _array(message: ps_pb2.NamedArray, name: str) -> Array:
    if message.type not in TYPES:
        raise MalformedError(f"an array {name!r} of type {message.type[:8]!r}")
    kind, shape = np.dtype(message.type), tuple(message.shape)
    if len(shape) > 32 or math.prod(shape) * kind.itemsize != len(message.data):
        raise MalformedError(f"an array {name!r} of {len(message.data)} bytes, of shape {shape}")
    return np.frombuffer(message.data, kind).reshape(shape)
