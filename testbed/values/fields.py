"""The types of scenario fields, with their limits and error messages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema

from testbed.errors import InvalidValue, Problem, ScenarioError
from testbed.values.units import Duration, Quantity, Rate, Size

Part = TypeVar("Part")

LARGEST_COUNT = 10**12
MOST_GPUS = 64

SYSTEM_FOLDERS = ("/dev", "/proc", "/run", "/sys")
"""System folders, of which a node has its own."""

NAMES = "a name of at most 40 letters, digits, dots, hyphens and underscores, like lr0.01_s1"
KEYS = "a name of at most 40 letters, digits, hyphens and underscores, like my-run-2"
NODES = "a name of at most 40 lowercase letters, digits, hyphens and underscores, like my-program-2"
_ATTRIBUTES = "Attributes:\n"
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
_KEY = "[A-Za-z0-9][A-Za-z0-9_-]{0,39}"  # no dot: paths such as those of --set are split at dots
_NODE = "[a-z0-9][a-z0-9_-]{0,39}"  # in a command `${HOME}` is the shell's, `{other}` a node
_IMAGE = r"[a-z0-9][A-Za-z0-9._:/@-]{0,254}"


class StrictModel(BaseModel):
    """Base of every part of a scenario: frozen, and strict about unknown keys.

    Validators are built on import. Were they built on first use, a signal that arrives in a role
    meanwhile would become pydantic's error.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema, whose keys the ``Attributes`` of the class and its bases describe."""
        schema = handler(core_schema)
        described, meanings = handler.resolve_ref_schema(schema), dict[str, str]()
        docs = [
            inspect.cleandoc(kind.__doc__ or "") for kind in cls.__mro__ if kind is not BaseModel
        ]
        for doc in reversed(docs):
            meanings |= _ATTRIBUTE.findall(doc.partition(_ATTRIBUTES)[2])
        for name, field in cls.model_fields.items():
            key = field.alias or name
            if meaning := meanings.get(name) or meanings.get(key):
                described["properties"][key]["description"] = _one_line(meaning)
        described["description"] = _one_line(docs[0].partition(_ATTRIBUTES)[0])
        return schema


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def replaced(part: Part, path: Sequence[str], value: object) -> Part:
    """Return a copy of a model or mapping with another value at a path in it, not validated."""
    name, *inner = path
    holder: Any = part
    mapping = isinstance(part, dict)
    if inner:
        value = replaced(holder[name] if mapping else getattr(part, name), inner, value)
    changed = {**holder, name: value} if mapping else holder.model_copy(update={name: value})
    return cast(Part, changed)


def _matching(pattern: str, expected: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise InvalidValue("", expected)
        return text

    return AfterValidator(check)


def check_name(text: str, *, option: str) -> None:
    """Refuse a name from the command-line ``option`` that is invalid in a scenario.

    Raises:
        ScenarioError: it has other characters, or is too long.
    """
    if not re.fullmatch(_NAME, text):
        raise ScenarioError([Problem(option, 0, "", repr(text), NAMES)])


def _word(text: str) -> str:
    if "\0" in text:
        raise InvalidValue("", "a word of a command, without NUL characters")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidValue("", f"a regular expression of Python's: {error}") from None
    return text


def _folder(text: str) -> str:
    path = PurePosixPath(text)
    system = path.parts[1:2] and f"/{path.parts[1]}" in SYSTEM_FOLDERS
    if not path.is_absolute() or path == PurePosixPath("/") or ".." in path.parts or system:
        others = ", ".join(SYSTEM_FOLDERS)
        raise InvalidValue(
            "", f"the absolute path of a folder outside {others}, like /home/me/tools"
        )
    return str(path)


def not_empty(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command or not command[0]:
        raise InvalidValue("", "a program and its arguments, like [iperf3, --server]")
    return command


def version_one(value: Any) -> Any:
    if type(value) is not int:  # 1.0 and true are equal to 1
        raise InvalidValue("", "`1`")
    return value


def with_tag(image: str) -> str:
    """Return the name of an image as an engine completes it: with a tag, or a digest."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def _positive(largest: Quantity) -> AfterValidator:
    def check(value: Quantity) -> Quantity:
        if not 0 < value <= largest:
            raise InvalidValue(str(value), f"a {value.NOUN} above zero and at most {largest}")
        return value

    return AfterValidator(check)


def _at_most(largest: Quantity) -> AfterValidator:
    def check(value: Quantity) -> Quantity:
        if value > largest:
            raise InvalidValue(str(value), f"a {value.NOUN} of at most {largest}")
        return value

    return AfterValidator(check)


def _gpus(value: Any) -> Any:
    if type(value) not in (int, float) or not (0 < value < 1 or value in range(MOST_GPUS + 1)):
        expected = f"a number of GPUs from 0 to {MOST_GPUS}, or a share of one GPU, like 0.25"
        raise InvalidValue("", expected)
    return value


def not_auto(value: Any) -> Any:
    if value == "auto":
        raise InvalidValue("'auto'", "a number: emulated seconds per real second, such as 1.0")
    return value


Name = Annotated[
    str, _matching(_NAME, NAMES), WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"})
]
Key = Annotated[
    str, _matching(_KEY, KEYS), WithJsonSchema({"type": "string", "pattern": f"^{_KEY}$"})
]
NODE_SCHEMA = {"type": "string", "pattern": f"^{_NODE}$"}
NodeName = Annotated[str, _matching(_NODE, NODES), WithJsonSchema(NODE_SCHEMA)]
Image = Annotated[
    str,
    _matching(_IMAGE, "the name of an image, like edge-testbed:mine"),
    WithJsonSchema({"type": "string", "pattern": f"^{_IMAGE}$"}),
]
Share = Annotated[float, Field(gt=0, le=1, strict=True)]
Portion = Annotated[float, Field(ge=0, le=1, strict=True)]
BelowOne = Annotated[float, Field(ge=0, lt=1, strict=True)]
PositiveNumber = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
PerSecond = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
PositiveRate = Annotated[Rate, _positive(Rate(1e12))]
PositiveDuration = Annotated[Duration, _positive(Duration(10_000 * 3600))]
AnyDuration = Annotated[Duration, _at_most(Duration(10_000 * 3600))]
PositiveSize = Annotated[Size, _positive(Size(1e14))]
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT, strict=True)]
AtOnce = Annotated[int, Field(ge=1, le=1024, strict=True)]
Word = Annotated[str, AfterValidator(_word)]
Pattern = Annotated[str, AfterValidator(_word), AfterValidator(_pattern)]
Folder = Annotated[str, AfterValidator(_folder)]
Gpus = Annotated[
    int | float,
    BeforeValidator(_gpus),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MOST_GPUS},
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            ]
        }
    ),
]
Cpus = Annotated[float, Field(ge=0.01, le=4096, strict=True)]
