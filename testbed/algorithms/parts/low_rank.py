"""Products of two thin matrices in place of a model's tensors, as in PowerSGD.

A tensor of two or more dimensions is a matrix M, n x m: its first dimension, and all others. It is
approximated by P Qᵀ of rank r if that is smaller, r (n + m) < n m; other tensors stay whole. The
left factors are all P, the right ones all Q and then the whole tensors, each as one flat vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.algorithms.base import expect
from testbed.errors import RejectedError
from testbed.payloads import Factors, Payload, Vector
from testbed.payloads.layout import Layout


@dataclass(frozen=True)
class LowRank:
    """The matrices of a layout, and the rank of their factors."""

    layout: Layout
    rank: int

    def matrices(self) -> Iterator[tuple[slice, int, int]]:
        """Yield the part of the flat vector of each matrix that has factors, with n and m."""
        for part, shape in zip(self.layout.slices(), self.layout.shapes, strict=True):
            rows, size = shape[0] if shape else 1, part.stop - part.start
            columns = size // rows if rows else 0
            if len(shape) > 1 and self.rank * (rows + columns) < size:
                yield part, rows, columns

    def whole(self) -> list[slice]:
        """Return the parts of the flat vector that have no factors."""
        factored = [part for part, _, _ in self.matrices()]
        return [part for part in self.layout.slices() if part not in factored]

    @property
    def left_size(self) -> int:
        """Number of values in all P."""
        return sum(self.rank * rows for _, rows, _ in self.matrices())

    @property
    def q_size(self) -> int:
        """Number of values in all Q."""
        return sum(self.rank * columns for _, _, columns in self.matrices())

    @property
    def right_size(self) -> int:
        """Number of values in all Q and the whole tensors."""
        sizes = zip(self.layout.slices(), self.layout.sizes, strict=True)
        return self.q_size + sum(size for part, size in sizes if part in self.whole())

    def left_of(self, vector: Vector, right: Vector) -> Vector:
        """P = M Q of each matrix of a vector."""
        factors = self._thin(right, left=False)
        products = [
            _product(vector[part].reshape(rows, columns), q)
            for (part, rows, columns), q in zip(self.matrices(), factors, strict=True)
        ]
        return _flat(products)

    def right_of(self, vector: Vector, left: Vector) -> Vector:
        """Q = Mᵀ P of each matrix, and the whole tensors."""
        factors = self._thin(left, left=True)
        products = [
            _product(vector[part].reshape(rows, columns).T, p)
            for (part, rows, columns), p in zip(self.matrices(), factors, strict=True)
        ]
        return _flat([*products, *(vector[part] for part in self.whole())])

    def product(self, left: Vector, right: Vector) -> Vector:
        """P Qᵀ of each matrix, and the whole tensors, as a vector (N,)."""
        vector = np.zeros(self.layout.size, np.float32)
        both = zip(self._thin(left, left=True), self._thin(right, left=False), strict=True)
        for (part, _, _), (p, q) in zip(self.matrices(), both, strict=True):
            vector[part] = _product(p, q.T).ravel()
        start = self.q_size
        for part in self.whole():
            end = start + part.stop - part.start
            vector[part], start = right[start:end], end
        return vector

    def orthonormal(self, left: Vector) -> Vector:
        """Return left factors with the same span, and orthonormal columns; also for zeros."""
        return _flat([np.linalg.qr(p)[0] for p in self._thin(left, left=True)])

    def _thin(self, flat: Vector, *, left: bool) -> Iterator[Vector]:
        """Yield the factors of each matrix, shape (n, r) or (m, r)."""
        start = 0
        for _, rows, columns in self.matrices():
            length = rows if left else columns
            end = start + length * self.rank
            yield flat[start:end].reshape(length, self.rank)
            start = end


def average(payloads: Sequence[Payload]) -> Vector:
    """Return the mean of factors, in the given order, in float32."""
    total = np.zeros_like(expect(Factors, payloads[0]).values)
    for payload in payloads:
        total += expect(Factors, payload).values
    return total / np.float32(len(payloads))


def check_size(payload: Payload, size: int) -> None:
    """Refuse a payload that is not of this many factors.

    Raises:
        RejectedError: it is of another kind or size.
    """
    found = expect(Factors, payload).entries
    if found != size:
        raise RejectedError(f"{found} numbers of factors, expected {size}")


def _flat(parts: Sequence[Vector]) -> Vector:
    return np.concatenate([np.zeros(0, np.float32), *(part.ravel() for part in parts)])


def _product(one: Vector, other: Vector) -> Vector:
    with np.errstate(invalid="ignore", over="ignore"):  # the server refuses what is not finite
        return one @ other
