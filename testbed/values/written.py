"""Values that a scenario holds as one text, such as a rate, a law or a set of CPUs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from testbed.errors import Unfit


class Written(ABC):
    """A value that is read from its text and written as ``str`` has it.

    Attributes:
        WANTED: what is expected where such a value stands, in words.
        PATTERN: what its text matches, for the JSON schema.
        DESCRIPTION: what it is, likewise.
    """

    __slots__ = ()

    WANTED: ClassVar[str]
    PATTERN: ClassVar[str]
    DESCRIPTION: ClassVar[str]

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Read a text.

        Raises:
            Unfit: it says no such value.
        """

    @classmethod
    def _validate(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        raise Unfit("", cls.WANTED)

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
