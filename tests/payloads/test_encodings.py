"""Packed payloads: bytes by hand, round trips, and damaged data, which is harmless."""

from __future__ import annotations

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.payloads import Dense, Payload, Sparse
from testbed.payloads.encodings import as_sent, pack, size, unpack


def sparse(entries: dict[int, float]) -> Sparse:
    return Sparse(np.array(list(entries), np.int32), np.array(list(entries.values()), np.float32))


def again(payload: Payload, value_bytes: int = 4) -> Payload:
    """A payload after packing and unpacking."""
    data = memoryview(pack(payload, value_bytes))
    return unpack(type(payload), data, entries=payload.entries, value_bytes=value_bytes)


def plane(*numbers: int) -> bytes:
    """A plane with one byte per entry."""
    return len(numbers).to_bytes(4, "little") + bytes(numbers)


def test_the_planes_of_two_entries_by_hand() -> None:
    """Indices 1 and 258 go as 1 and 257, 1.0 and -2.0 as their bits 3f800000 and c0000000 turned
    left by one: 7f000000 and 80000001; the two highest bits say that both are there. So few bytes
    never become fewer."""
    indices = plane(0, 0) + plane(0, 0) + plane(0, 1) + plane(1, 1)
    values = plane(0b11000000) + plane(0x7F, 0x80) + plane(0, 0) + plane(0, 0) + plane(0, 1)
    assert pack(sparse({1: 1.0, 258: -2.0}), 4) == indices + values


def test_a_half_takes_two_planes() -> None:
    """1.0 and -2.0 are 3c00 and c000 in float16, turned 7800 and 8001; the zero between is left
    out, but not -0.0, which is turned to 1."""
    payload = Dense(np.array([1, 0, -2, -0.0], np.float32))
    assert pack(payload, 2) == plane(0b10110000) + plane(0x78, 0x80, 0) + plane(0, 1, 1)
    assert np.signbit(again(payload, 2).arrays[0]).tolist() == [False, False, True, True]


def test_similar_values_take_fewer_bytes() -> None:
    """A thousand equal values are four planes of one byte each; raw they take 4,000 bytes."""
    values = Dense(np.full(1000, 0.125, np.float32))
    assert size(values, "raw") == 4000
    assert size(values, "packed") == len(pack(values, 4)) < 100
    assert size(values, "packed16") < 60


def test_no_entries_take_only_their_lengths() -> None:
    assert pack(Sparse.nothing(), 4) == bytes(9 * 4)
    assert again(Sparse.nothing()).entries == 0


@settings(deadline=None, derandomize=True, database=None)
@given(st.dictionaries(st.integers(0, 2**31 - 1), st.floats(width=32), max_size=60))
def test_any_sparse_payload_survives_packing_bit_for_bit(entries: dict[int, float]) -> None:
    payload = sparse(dict(sorted(entries.items())))
    back = again(payload)
    assert [array.tobytes() for array in back.arrays] == [one.tobytes() for one in payload.arrays]
    assert [array.dtype.str for array in back.arrays] == list(Sparse.TYPES)


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.floats(width=16), max_size=60))
def test_any_half_survives_packing(values: list[float]) -> None:
    payload = Dense(np.array(values, np.float32))
    for width in (2, 4):
        np.testing.assert_array_equal(again(payload, width).arrays[0], payload.values)


def test_rounding_saturates_and_omits_zeros() -> None:
    """Float16 ends at 65504 and is rounded to it below 65520; its least number is 2^-24, and half
    of that is rounded to zero. 0.1 becomes 0x2e66, 1638 / 16384."""
    values = {0: 0.1, 3: 65519.0, 4: 65520.0, 7: -1e30, 8: 2.0**-25, 9: -(2.0**-24)}
    payload, saturated = as_sent(sparse(values), "packed16")
    assert isinstance(payload, Sparse)
    assert saturated == 2
    assert payload.indices.tolist() == [0, 3, 4, 7, 9]
    assert payload.values.tolist() == [1638 / 16384, 65504, 65504, -65504, -(2.0**-24)]
    assert payload.values.dtype == np.float32
    dense, saturated = as_sent(Dense(np.array([2.0**-25, 1e9], np.float32)), "packed16")
    assert (dense.arrays[0].tolist(), saturated) == ([0, 65504], 1)


def test_values_that_are_not_finite_stay_so() -> None:
    """The server ends a training that diverged, and must detect it."""
    payload, saturated = as_sent(sparse({1: np.nan, 2: -np.inf}), "packed16")
    assert np.isnan(payload.arrays[-1][0])
    assert payload.arrays[-1][1] == -np.inf
    assert saturated == 0


@pytest.mark.parametrize("encoding", ["raw", "packed"])
def test_nothing_else_is_rounded(encoding: str) -> None:
    payload = sparse({0: 0.1, 3: 1e-30})
    assert as_sent(payload, encoding) == (payload, 0)  # type: ignore[arg-type]


def test_a_pickle_takes_nine_bytes_per_value_and_three_per_index() -> None:
    assert sparse({0: 1.0, 5: 2.0}).pickle9_bytes == 2 * 12
    assert Dense(np.zeros(5, np.float32)).pickle9_bytes == 5 * 9


def deflated(data: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    inner = deflate.compress(data) + deflate.flush()
    return len(inner).to_bytes(4, "little") + inner


ALL, ZEROS = plane(*[255] * 5), plane(*[0] * 40)
DAMAGED = {
    "no plane, expected": ALL + ZEROS * 3,
    "after the last plane": ALL + ZEROS * 5,
    "inside a length": ALL + ZEROS * 4 + b"\1",
    "5 bytes beyond the payload": ALL + ZEROS * 3 + ZEROS[:-5],
    "a plane of 41 bytes, expected 1 to 40 bytes": ALL + ZEROS * 3 + plane(*[0] * 41),
    "not deflated": ALL + ZEROS * 3 + plane(*[255] * 9),
    "does not inflate to 40": ALL + ZEROS * 3 + deflated(bytes(39)),
    "does not inflate to 40 ": ALL + ZEROS * 3 + deflated(bytes(41)),
    "does not inflate to 40  ": ALL + ZEROS * 3 + plane(*deflated(bytes(40))[4:-1]),
    "does not inflate to 40   ": ALL + ZEROS * 3 + plane(*deflated(bytes(40))[4:], 7),
}


@pytest.mark.parametrize("reason", DAMAGED)
def test_damaged_planes_are_refused(reason: str) -> None:
    with pytest.raises(ValueError, match=reason.strip()):
        unpack(Dense, memoryview(DAMAGED[reason]), entries=40, value_bytes=4)


def test_a_bomb_is_refused_without_being_inflated() -> None:
    """A gigabyte of zeros compresses to a megabyte; here a tenth of it, for a million values."""
    bomb = memoryview(deflated(bytes(100_000_000)))
    tracemalloc.start()
    with pytest.raises(ValueError, match="does not inflate to 125000"):
        unpack(Dense, bomb, entries=1_000_000, value_bytes=4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000  # the expected numbers, and a plane


def test_random_damage_is_refused_or_harmless() -> None:
    rng = np.random.default_rng(3)
    payload = sparse({int(index): float(index % 7) for index in range(0, 4000, 13)})
    whole, refused = pack(payload, 4), 0
    for _ in range(500):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            data[place] ^= 1 << int(rng.integers(0, 8))
        try:
            back = unpack(Sparse, memoryview(data), entries=payload.entries, value_bytes=4)
        except ValueError:
            refused += 1
        else:
            assert [array.size for array in back.arrays] == [payload.entries] * 2
    assert refused > 100
