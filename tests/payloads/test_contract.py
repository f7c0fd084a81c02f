"""The contract of every kind of payload. New kinds are tested automatically."""

import pkgutil

import numpy as np
import pytest

from testbed import payloads
from testbed.payloads import (
    KINDS,
    Dense,
    Factors,
    Keyed,
    Packable,
    Payload,
    Quantized,
    Signs,
    Sparse,
)
from testbed.payloads.encodings import pack, unpack
from testbed.payloads.keyed import signature_of

N = 8
CORE, VALUES = np.array([1, 3], np.int32), np.array([1, -2, 0.5], np.float32)
SAMPLES: dict[type[Payload], Payload] = {
    Dense: Dense(np.arange(N, dtype=np.float32)),
    Sparse: Sparse(np.array([1, 3, 7], np.int32), np.array([1, -2, 0.5], np.float32)),
    Keyed: Keyed(signature_of(CORE), CORE, VALUES[:2], np.array([0, 5, 7], np.int32), VALUES),
    Quantized: Quantized(np.array([1, 0.5], np.float32), np.arange(-3, 5, dtype=np.int8)),
    Factors: Factors(np.arange(N, dtype=np.float32)),
    Signs: Signs.of_values(np.array([1, -1, 0, -0.5, 2, 3, 4, -5], np.float32)),
}
"""One of each kind that fits a model of N entries."""

NO_KINDS = {"base", "layout", "encodings", "notes", "topk", "qsgd", "core_explorer"}

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
every_packable = pytest.mark.parametrize(
    "kind", [one for one in KINDS if issubclass(one, Packable)], ids=lambda kind: kind.__name__
)


def test_every_module_is_listed_and_has_a_sample_here() -> None:
    modules = {one.name for one in pkgutil.iter_modules(payloads.__path__)} - NO_KINDS
    listed = {kind.__module__.rpartition(".")[2] for kind in KINDS}
    assert modules == listed, "add the kind to KINDS in testbed/payloads/__init__.py"
    assert SAMPLES.keys() == set(KINDS), "add a sample of the kind to this file"


def test_numbers_are_unique() -> None:
    assert len({kind.NUMBER for kind in KINDS}) == len(KINDS)


@every_kind
def test_a_payload_is_rebuilt_from_its_arrays(kind: type[Payload]) -> None:
    sample = SAMPLES[kind]
    assert [array.dtype.str for array in sample.arrays] == list(kind.TYPES)
    again = kind.of(sample.arrays)
    assert again.entries == sample.entries
    for one, other in zip(sample.arrays, again.arrays, strict=True):
        np.testing.assert_array_equal(one, other)


@every_kind
def test_the_size_is_that_of_the_arrays(kind: type[Payload]) -> None:
    sample = SAMPLES[kind]
    assert sample.size == sum(array.nbytes for array in sample.arrays)


@every_kind
def test_a_payload_fits_its_model_and_no_smaller_one(kind: type[Payload]) -> None:
    assert SAMPLES[kind].flaw(N) == ""
    assert SAMPLES[kind].flaw(N - 1) != ""


@every_packable
@pytest.mark.parametrize("width", [4, 2])
def test_a_payload_survives_packing(kind: type[Payload], width: int) -> None:
    sample = SAMPLES[kind]
    data = memoryview(pack(sample, width))
    again = unpack(kind, data, entries=sample.entries, value_bytes=width)
    for one, other in zip(sample.arrays, again.arrays, strict=True):
        np.testing.assert_array_equal(one, other)


@every_packable
def test_values_can_be_replaced(kind: type[Payload]) -> None:
    sample = SAMPLES[kind]
    assert isinstance(sample, Packable)
    values = np.arange(sample.entries, dtype=np.float32)
    changed = sample.with_values(values)
    assert changed.arrays[-1].sum() == values.sum()
    assert changed.flaw(N) == ""


@pytest.mark.parametrize(
    "kind", [one for one in KINDS if "<f4" in one.TYPES], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_detected(kind: type[Payload], value: float) -> None:
    assert SAMPLES[kind].finite
    arrays = [array.copy() for array in SAMPLES[kind].arrays]
    floats = next(array for array in arrays if array.dtype.kind == "f")
    floats[1] = value
    assert not kind.of(arrays).finite
