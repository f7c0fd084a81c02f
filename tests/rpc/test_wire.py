"""The wire format, worked by hand from the encoding's description."""

import pytest

from testbed.rpc.wire import BYTES, MalformedError, bytes_fields, cut, fields, header, varint

# 1: 150 (varint), 2: "ab", 3: 8 fixed bytes, 4: 4 fixed bytes
NUMBERS = bytes.fromhex("08 9601  12 02 6162  19 0102030405060708  25 01020304")


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02")]
)
def test_varints(value: int, encoded: str) -> None:
    assert varint(value) == bytes.fromhex(encoded)


def test_a_header_is_a_tag_and_a_length() -> None:
    assert header(15, 3) == bytes.fromhex("7a 03")
    assert header(16, 128) == bytes.fromhex("8201 8001")


def test_fields_are_found_with_their_offsets() -> None:
    found = [(f.number, f.kind, f.start, f.value, f.end) for f in fields(memoryview(NUMBERS))]
    assert found == [(1, 0, 0, 1, 3), (2, BYTES, 3, 5, 7), (3, 1, 7, 8, 16), (4, 5, 16, 17, 21)]


def test_a_field_is_cut_out_as_a_view() -> None:
    rest, value = cut(NUMBERS, 2)
    assert rest == NUMBERS[:3] + NUMBERS[7:]
    assert value is not None
    assert bytes(value) == b"ab"
    assert value.obj is NUMBERS


def test_a_missing_field_is_not_cut_out() -> None:
    assert cut(NUMBERS, 9) == (NUMBERS, None)
    assert cut(b"", 9) == (b"", None)
    assert cut(NUMBERS, 1) == (NUMBERS, None)  # a varint is not a submessage


def test_unknown_groups_are_skipped() -> None:
    # group 1 { 2: 5, group 3 { 4: "x" } }, then 15: "payload"
    group = bytes.fromhex("0b 10 05 1b 22 01 78 1c 0c")
    rest, value = cut(group + header(15, 7) + b"payload", 15)
    assert (rest, bytes(value or b"")) == (group, b"payload")


def test_only_the_requested_numbers_are_read() -> None:
    message = memoryview(header(1, 1) + b"a" + header(7, 1) + b"b" + header(7, 1) + b"c")
    assert {number: bytes(value) for number, value in bytes_fields(message, (1, 2)).items()} == {
        1: b"a"
    }


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("08", "ends inside a number"),
        ("08 96", "ends inside a number"),
        ("08" + "80" * 10 + "01", "more than 64 bits"),
        ("00 01", "does not start a field"),  # number 0
        ("0e", "does not start a field"),  # wire type 6
        ("f8ffffff1f 00", "does not start a field"),  # a number above 2^29 - 1
        ("12 03 6162", "ends 1 bytes after the message"),
        ("12 ffffffffffffffff7f", "after the message"),
        ("19 01020304", "ends 4 bytes after the message"),
        ("25 01", "ends 3 bytes after the message"),
        ("0c", "ends a group that was not started"),
        ("0b 10 05", "ends inside a number"),  # a group without an end
        ("0b 14", "ends a group that is not open"),
    ],
)
def test_impossible_bytes_are_refused(message: str, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        list(fields(memoryview(bytes.fromhex(message))))


def test_a_bulk_field_must_not_occur_twice() -> None:
    twice = (header(15, 1) + b"a") * 2
    with pytest.raises(MalformedError, match="field 15 occurs twice"):
        cut(twice, 15)
    with pytest.raises(MalformedError, match="field 15 occurs twice"):
        bytes_fields(memoryview(twice), (15,))
