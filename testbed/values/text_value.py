"""Values that a scenario stores as text, such as a rate, a law or a set of CPUs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from testbed.errors import InvalidValue


class TextValue(ABC):
    """A value that is parsed from text and written by ``str``.

    Attributes:
        WANTED: description of an expected value, for messages.
        PATTERN: pattern of its text, for the JSON schema.
        DESCRIPTION: description, for the JSON schema.
    """

    __slots__ = ()

    WANTED: ClassVar[str]
    PATTERN: ClassVar[str]
    DESCRIPTION: ClassVar[str]

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Parse a text.

        Raises:
            InvalidValue: the text is not such a value.
        """

    @classmethod
    def _validate(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        raise InvalidValue("", cls.WANTED)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": cls.PATTERN, "description": cls.DESCRIPTION}
