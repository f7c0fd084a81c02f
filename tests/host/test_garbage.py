"""What the collector of garbage passes over while something may be due."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from testbed.host.garbage import heap_frozen


class Kept:
    """Something that the collector can tell from everything else."""


def looked_at(one: Any) -> bool:
    """Whether a full collection looks at an object."""
    return any(found is one for found in gc.get_objects())


def test_what_exists_is_passed_over_only_inside() -> None:
    before = Kept()
    assert looked_at(before)
    with pytest.raises(KeyError), heap_frozen():
        since = Kept()
        assert looked_at(since) and not looked_at(before)
        raise KeyError
    assert looked_at(since) and looked_at(before)


def test_what_becomes_garbage_inside_is_collected() -> None:
    with heap_frozen():
        one: Any = Kept()
        one.itself = one
        alive = weakref.ref(one)
        del one
        gc.collect()
        assert alive() is None
