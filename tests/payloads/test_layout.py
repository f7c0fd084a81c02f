"""The layout of a flat vector."""

import numpy as np
import pytest

from testbed.payloads import zeros
from testbed.payloads.layout import Layout

LAYOUT = Layout(("conv.weight", "conv.bias", "dense.weight"), ((2, 1, 3, 3), (2,), (4, 5)))


def test_the_tensors_are_contiguous() -> None:
    assert LAYOUT.sizes == (18, 2, 20)
    assert LAYOUT.size == 40
    assert list(LAYOUT.slices()) == [slice(0, 18), slice(18, 20), slice(20, 40)]


def test_a_fingerprint_depends_on_names_order_and_shapes() -> None:
    same = Layout(LAYOUT.names, LAYOUT.shapes)
    renamed = Layout(("conv.weight", "conv.bias", "out.weight"), LAYOUT.shapes)
    transposed = Layout(LAYOUT.names, ((2, 1, 3, 3), (2,), (5, 4)))
    reordered = Layout(LAYOUT.names[::-1], LAYOUT.shapes[::-1])
    assert LAYOUT.fingerprint == same.fingerprint
    assert len({x.fingerprint for x in (LAYOUT, renamed, transposed, reordered)}) == 4
    assert 0 <= LAYOUT.fingerprint < 2**64


@pytest.mark.parametrize("size", [1, 15, 16, 669_706])
def test_zeros_start_at_a_cache_line_and_are_complete(size: int) -> None:
    several = [zeros(size) for _ in range(4)]  # one alone may start there by chance
    for one in several:
        assert one.ctypes.data % 64 == 0
        assert (one.dtype, one.shape) == (np.float32, (size,))
        assert not one.any()
        one[:] = 1
    assert zeros(size).sum() == 0
