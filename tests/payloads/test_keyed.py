"""Core values under known keys and explorer pairs: sizes, refusals, and the caches."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.errors import AlgorithmError, RejectedError
from testbed.payloads import Dense, Keyed, Quantized
from testbed.payloads.encodings import as_sent
from testbed.payloads.keyed import KeyCache, UnknownKeysError, signature_of

N = 8


def keys(*indices: int) -> Any:
    return np.array(indices, np.int32)


def values(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def keyed(**changes: Any) -> Keyed:
    """Keys 1, 3 and 7 in the core, 0 and 4 in the explorer."""
    sample = Keyed(
        signature_of(keys(1, 3, 7)), keys(1, 3, 7), values(1, 2, 3), keys(0, 4), values(5, 6)
    )
    return replace(sample, **changes)


def test_the_size_matches_the_formula() -> None:
    # 8 for the signature, 4 per core key, 4 per core value, 8 per explorer pair
    assert keyed().size == 8 + 3 * 4 + 3 * 4 + 2 * 8
    assert keyed().with_core(keys()).size == 8 + 3 * 4 + 2 * 8
    assert keyed().entries == keyed().with_core(keys()).entries == 5


def test_a_signature_depends_on_the_keys() -> None:
    assert signature_of(keys(1, 3, 7)) == signature_of(np.array([1, 3, 7], "<i4"))
    assert signature_of(keys(1, 3, 7)) != signature_of(keys(1, 3, 6))
    assert signature_of(keys()).shape == (1,)


@pytest.mark.parametrize(
    ("changes", "flaw"),
    [
        ({"core": keys(1, 3, 8)}, r"core keys must increase strictly within \[0, 8\)"),
        ({"core": keys(-1, 3, 7)}, "core keys must increase"),
        ({"core": keys(1, 7, 3)}, "core keys must increase"),
        ({"core": keys(1, 1, 3)}, "core keys must increase"),
        ({"explorer": keys(4, 0)}, "explorer keys must increase"),
        ({"explorer": keys(0, 0)}, "explorer keys must increase"),
        ({"explorer": keys(0, 9)}, "explorer keys must increase"),
        ({"explorer": keys(0, 3)}, "1 keys are in the core and in the explorer"),
        ({"core": keys(1, 3)}, "2 core keys with 3 values"),
        ({"core": keys()}, "0 core keys with 3 values"),
        ({"explorer": keys(0)}, "1 explorer keys with 2 values"),
        ({"signature": np.empty(0, "<u8")}, "0 signatures"),
    ],
)
def test_mismatched_parts_are_named(changes: dict[str, Any], flaw: str) -> None:
    assert keyed().flaw(N) == ""
    found = keyed(**changes).flaw(N)
    assert re.match(flaw, found)


@pytest.mark.parametrize(
    ("scales", "levels", "flaw"),
    [
        ([1.0, 2.0], [0] * 7, "7 levels for a model of 8"),
        ([], [0] * 8, "0 scales for 8 levels"),
        ([1.0, -1.0], [0] * 8, "a scale is negative"),
        ([1.0], [0] * 7 + [-128], "a level is below -127"),
    ],
)
def test_mismatched_levels(scales: list[float], levels: list[int], flaw: str) -> None:
    payload = Quantized(np.array(scales, np.float32), np.array(levels, np.int8))
    assert payload.flaw(N) == flaw


def test_keys_travel_once() -> None:
    sender, receiver = KeyCache(), KeyCache()
    first = sender.outgoing(keyed())
    assert first.size == keyed().size
    receiver.remember(receiver.incoming(first))
    second = sender.outgoing(keyed(core_values=values(7, 8, 9)))
    assert second.size == keyed().size - 3 * 4
    whole = receiver.incoming(second)
    assert isinstance(whole, Keyed)
    assert (whole.core.tolist(), whole.core_values.tolist()) == ([1, 3, 7], [7, 8, 9])
    other = keys(2, 3, 7)
    third = sender.outgoing(keyed(core=other, signature=signature_of(other)))
    assert third.size == keyed().size


def test_unknown_keys_are_refused_and_sent_again_in_full() -> None:
    sender, receiver = KeyCache(), KeyCache()
    sender.outgoing(keyed())
    shortened = sender.outgoing(keyed())
    with pytest.raises(UnknownKeysError, match="are not known"):
        receiver.incoming(shortened)
    sender.drop()
    receiver.remember(receiver.incoming(sender.outgoing(keyed())))
    assert receiver.incoming(sender.outgoing(keyed())).flaw(N) == ""


def test_a_refused_message_is_not_cached() -> None:
    sender, receiver = KeyCache(), KeyCache()
    receiver.incoming(sender.outgoing(keyed()))
    with pytest.raises(UnknownKeysError):
        receiver.incoming(sender.outgoing(keyed()))


def test_a_signature_of_other_keys_is_refused() -> None:
    with pytest.raises(RejectedError, match="not that of the core keys"):
        KeyCache().incoming(keyed(signature=signature_of(keys(1, 3, 6))))


def test_a_core_without_keys_and_other_payloads_pass() -> None:
    sender, receiver = KeyCache(), KeyCache()
    empty = keyed(core=keys(), core_values=values(), signature=signature_of(keys()))
    dense = Dense(values(1, 2))
    for payload in (empty, dense):
        assert receiver.incoming(sender.outgoing(payload)) is payload


def test_neither_kind_can_be_packed() -> None:
    for payload in (keyed(), Quantized(values(1), np.zeros(N, np.int8))):
        assert as_sent(payload, "raw") == (payload, 0)
        with pytest.raises(AlgorithmError, match="cannot be packed"):
            as_sent(payload, "packed")
