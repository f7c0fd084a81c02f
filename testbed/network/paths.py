"""The way of frames from switch to switch. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

from testbed.values.topology import Trunk


def next_trunks(trunks: Sequence[Trunk], switch: str) -> Mapping[str, int]:
    """Return for every other switch the number of the trunk over which frames go to ``switch``.

    The path has the fewest trunks; of several, the least delay, then those that come first. Frames
    between two switches take the same path both ways. A switch without a path is left out.
    """
    at: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for number, trunk in enumerate(trunks):
        for one, other in (trunk.ends, trunk.ends[::-1]):
            at[one].append((number, other))
    found: dict[str, int] = {}
    waiting: list[tuple[int, int, list[int], str, int]] = [(0, 0, [], switch, -1)]
    while waiting:
        count, delay, path, here, over = heapq.heappop(waiting)
        if here in found:
            continue
        found[here] = over
        for number, other in at[here]:
            link = trunks[number].link
            added = round(1e9 * (float(link.up.delay or 0) + float(link.down.delay or 0)))
            heapq.heappush(
                waiting, (count + 1, delay + added, sorted([*path, number]), other, number)
            )
    del found[switch]
    return found
