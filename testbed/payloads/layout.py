"""The layout of a model's tensors in one flat parameter vector."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True)
class Layout:
    """Names (such as ``conv1.weight``) and shapes of a model's tensors, in order.

    Attributes:
        untrained: names of frozen parameters and of buffers: no optimizer changes them. Their part
            of a gradient is what a step subtracts from them, whatever its learning rate: zeros for
            a frozen parameter, the change in the forward pass, negative, for a buffer.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    untrained: frozenset[str] = frozenset()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each tensor."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """Number of entries of the whole vector: N in the papers."""
        return sum(self.sizes)

    @cached_property
    def untrained_slices(self) -> tuple[slice, ...]:
        """The parts of the flat vector that no optimizer changes."""
        named = zip(self.names, self.slices(), strict=True)
        return tuple(part for name, part in named if name in self.untrained)

    def part(self, names: Collection[str]) -> Layout:
        """Return the layout of some of the tensors, in the same order."""
        both = zip(self.names, self.shapes, strict=True)
        found = {name: shape for name, shape in both if name in names}
        return Layout(tuple(found), tuple(found.values()), self.untrained.intersection(names))

    def followed_by(self, other: Layout) -> Layout:
        """Return the layout of a vector that has the tensors of the other behind its own."""
        names, shapes = self.names + other.names, self.shapes + other.shapes
        return Layout(names, shapes, self.untrained | other.untrained)

    def slices(self) -> Iterator[slice]:
        """Yield the part of the flat vector of each tensor, in order."""
        start = 0
        for size in self.sizes:
            yield slice(start, start + size)
            start += size

    @cached_property
    def fingerprint(self) -> int:
        """A 64-bit number that two layouts share only if names, order and shapes are equal."""
        text = ";".join(f"{n}:{s}" for n, s in zip(self.names, self.shapes, strict=True))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
