"""Frames, worked by hand from their description in the contract."""

import pytest

from testbed.rpc._pb import ps_pb2
from testbed.rpc.wire import MalformedError, join, parse, split

# PullRequest with worker 3: field 1, a number; its frame with two arrays of two bytes and one.
FRAME = bytes.fromhex("02000000 0803 6162 63")


def test_a_frame_is_a_length_a_message_and_arrays() -> None:
    assert join(ps_pb2.PullRequest(worker=3), [b"ab", memoryview(b"c")]) == FRAME
    head, arrays = split(ps_pb2.PullRequest, FRAME)
    assert (head.worker, bytes(arrays)) == (3, b"abc")
    assert arrays.obj is FRAME
    head, arrays = split(ps_pb2.PullRequest, join(ps_pb2.PullRequest(), ()))
    assert (head.worker, len(arrays)) == (0, 0)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "a frame of 0 bytes, expected at least 4"),
        (FRAME[:3], "a frame of 3 bytes, expected at least 4"),
        (FRAME[:5], "a frame of 5 bytes, expected at least 6"),
        (b"\xff" * 40, "expected at least 4294967299"),
        (bytes.fromhex("01000000 08 03"), "not a PullRequest"),
    ],
)
def test_what_is_no_frame_is_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        split(ps_pb2.PullRequest, frame)


def test_small_messages_are_parsed_or_refused() -> None:
    request = ps_pb2.JoinRequest(worker=3, fingerprint=1)
    assert parse(ps_pb2.JoinRequest, request.SerializeToString()) == request
    with pytest.raises(MalformedError, match="not a JoinRequest"):
        parse(ps_pb2.JoinRequest, b"\xff")
