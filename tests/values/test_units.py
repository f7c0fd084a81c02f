"""Quantities: parsing, printing, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from testbed.errors import InvalidValue
from testbed.values.units import Duration, Quantity, Rate, Size


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20mbit", 20e6),
        ("1.5gbit", 1.5e9),
        ("1e3bit", 1000),
        (" 8 kbit ", 8000),
        ("0bit", 0),
    ],
)
def test_rates_are_bits_per_second(text: str, value: float) -> None:
    assert Rate.parse(text) == value


def test_a_rate_in_bytes_is_an_eighth() -> None:
    assert Rate.parse("10mbit").bytes_per_second == 1_250_000


@pytest.mark.parametrize(
    ("text", "value"), [("64KiB", 65536), ("64KB", 64000), ("3GiB", 3 * 2**30)]
)
def test_sizes_know_decimal_and_binary_multiples(text: str, value: float) -> None:
    assert Size.parse(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("30ms", 0.03), ("2min", 120), ("250us", 0.00025), ("1h", 3600)]
)
def test_durations_are_seconds(text: str, value: float) -> None:
    assert Duration.parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "5", "mbit", "-5mbit", "5 furlong", "5Mbit", "1:30", "1e999mbit", "5mbit\n6mbit"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="expected a rate"):
        Rate.parse(text)


def test_a_negative_quantity_is_not_one_without_a_unit() -> None:
    for kind, text in ((Duration, "-20ms"), (Rate, " -5mbit"), (Size, "- 1e3KiB")):
        with pytest.raises(InvalidValue, match="which is negative, expected a"):
            kind.parse(text)
    for text in ("-20", "--20ms", "-20 furlong", "20-ms", "-"):
        with pytest.raises(InvalidValue) as refused:
            Duration.parse(text)
        assert "negative" not in str(refused.value)


def test_an_unknown_unit_names_the_known_ones() -> None:
    with pytest.raises(
        InvalidValue, match="'mb', expected a rate in one of the units bit, kbit, mbit"
    ):
        Rate.parse("5mb")


def test_a_huge_text_gives_a_short_message() -> None:
    with pytest.raises(InvalidValue) as refused:
        Size.parse("9" * 100_000)
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize("value", [5, 5.5, True, None, ["5ms"], {"s": 5}, Rate(5)])
def test_a_field_refuses_bare_numbers_and_everything_except_text(value: object) -> None:
    class Holder(BaseModel):
        wait: Duration

    with pytest.raises(ValidationError, match="like 30ms"):
        Holder.model_validate({"wait": value})


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (Rate(20e6), "20mbit"),
        (Rate(1234567), "1.234567mbit"),
        (Size(1536), "1.5KiB"),
        (Size(1000), "1KB"),
        (Duration(0.0305), "30.5ms"),
        (Duration(0.5e-6), "0.5us"),
        (Duration(90), "1.5min"),
        (Duration(0), "0s"),
    ],
)
def test_printing_uses_the_largest_exact_unit(quantity: Quantity, text: str) -> None:
    assert str(quantity) == text


@settings(max_examples=200, derandomize=True, database=None)
@given(
    kind=st.sampled_from([Rate, Size, Duration]),
    value=st.floats(min_value=0, max_value=1e15, allow_nan=False),
)
def test_printed_quantities_parse_back_to_the_same_number(
    kind: type[Quantity], value: float
) -> None:
    assert kind.parse(str(kind(value))) == value
