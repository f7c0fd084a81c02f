"""Sets of CPU numbers: parsed, written in the kernel's format, refused."""

import pytest
from pydantic import TypeAdapter

from testbed.errors import InvalidValue
from testbed.values.cpu_sets import CpuSet


@pytest.mark.parametrize(
    ("text", "same", "numbers"),
    [
        ("0", "0", {0}),
        ("0-1,3", "0-1,3", {0, 1, 3}),
        ("3,1,0", "0-1,3", {0, 1, 3}),
        ("2-2,03,3-5", "2-5", {2, 3, 4, 5}),
        ("4095", "4095", {4095}),
    ],
)
def test_a_set_is_written_in_the_kernels_format(text: str, same: str, numbers: set[int]) -> None:
    assert CpuSet.parse(text) == same
    assert CpuSet.parse(text).numbers == numbers


@pytest.mark.parametrize("text", ["", "all", "0-", "-1", "1;2", "0, 1", "0,,1", "12345", "0-1-2"])
def test_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="expected CPUs by number, in quotes, like '0-1,3'"):
        CpuSet.parse(text)


def test_impossible_cpus_are_refused() -> None:
    with pytest.raises(
        InvalidValue, match="found the range 3-1, expected its lower end first: 1-3"
    ):
        CpuSet.parse("0,3-1")
    with pytest.raises(
        InvalidValue, match="found the CPU 4096, expected a number of at most 4,095"
    ):
        CpuSet.parse("0-4096")


def test_the_empty_set() -> None:
    assert CpuSet.of([]) == ""
    assert CpuSet("").numbers == frozenset()


def test_a_set_survives_a_round_trip_as_json() -> None:
    adapter = TypeAdapter(CpuSet)
    assert adapter.validate_json(adapter.dump_json(CpuSet("0-1,3"))) == CpuSet("0-1,3")
