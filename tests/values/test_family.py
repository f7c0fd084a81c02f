"""The three ways to write a member of a family."""

from typing import Annotated, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from testbed.values.family import Named, full_form


class Square(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["square"]
    side: int = 1


class Box(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["box"]
    width: int


Figure = Annotated[Square | Box, Named()]
FIGURE: TypeAdapter[Square | Box] = TypeAdapter(Figure)


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ("square", {"name": "square"}),
        ({"square": None}, {"name": "square"}),
        ({"square": {"side": 3}}, {"name": "square", "side": 3}),
        ({"name": "square", "side": 3}, {"name": "square", "side": 3}),
        ({"name": "square"}, {"name": "square"}),
        ({"side": 3}, {"side": 3}),
        ({"square": {"name": "box"}}, {"square": {"name": "box"}}),
        (7, 7),
        ({}, {}),
    ],
)
def test_short_forms_become_the_full_form(written: object, full: object) -> None:
    assert full_form(written) == full


@pytest.mark.parametrize(
    "written", ["square", {"square": {"side": 3}}, {"square": None}, {"box": {"width": 2}}]
)
def test_a_union_and_its_schema_accept_every_form(written: object) -> None:
    FIGURE.validate_python(written)
    Draft202012Validator(FIGURE.json_schema()).validate(written)


@pytest.mark.parametrize(
    "written", ["box", "circle", {"box": None}, {"square": {"size": 3}}, {"box": {}}, 7]
)
def test_the_schema_refuses_what_the_union_refuses(written: object) -> None:
    with pytest.raises(ValidationError):
        FIGURE.validate_python(written)
    assert not Draft202012Validator(FIGURE.json_schema()).is_valid(written)
