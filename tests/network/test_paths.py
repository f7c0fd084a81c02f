from __future__ import annotations

import pytest

from testbed.network.paths import next_trunks
from testbed.values.topology import Direction, LinkSpec, Trunk
from testbed.values.units import Duration


def trunk(one: str, other: str, *, delay: float = 0.0) -> Trunk:
    """A trunk with half of its round trip in each direction."""
    half = Direction(delay=Duration(delay / 2))
    return Trunk(f"{one}{other}", (one, other), LinkSpec("", "", half, half))


def path(trunks: list[Trunk], start: str, end: str) -> str:
    """The switches on the way, in order."""
    ahead, passed = next_trunks(trunks, end), [start]
    while passed[-1] != end:
        ends = trunks[ahead[passed[-1]]].ends
        passed.append(ends[1 - ends.index(passed[-1])])
    return "".join(passed)


LINE = [trunk("a", "b"), trunk("b", "c"), trunk("c", "d")]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], "abcd"),
        ([trunk("d", "a", delay=9)], "ad"),  # fewer trunks, however long
        ([trunk("a", "x", delay=1), trunk("x", "d", delay=1), trunk("b", "d", delay=3)], "axd"),
        ([trunk("b", "d"), trunk("a", "x"), trunk("x", "d")], "abd"),  # alike: the first ones
    ],
)
def test_a_path_has_the_fewest_trunks_and_then_the_least_delay(
    more: list[Trunk], expected: str
) -> None:
    trunks = LINE + more
    assert path(trunks, "a", "d") == expected
    assert path(trunks, "d", "a") == expected[::-1]


def test_a_switch_without_a_path_is_left_out() -> None:
    assert next_trunks([*LINE, trunk("y", "z")], "a") == {"b": 0, "c": 1, "d": 2}
    assert next_trunks([], "a") == {}
