"""The JSON schema of a scenario, with which editors complete and check while one types."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel

from testbed.scenario.schema import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def json_schema(document: type[BaseModel] = Scenario) -> dict[str, Any]:
    """The schema, each key described by what its class's docstring says under ``Attributes``."""
    schema = document.model_json_schema(by_alias=True)
    _describe(schema)
    return {"$schema": DIALECT, **schema}


def json_schema_text() -> str:
    """The schema as the text of a file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _describe(schema: Any) -> None:
    """Spread each docstring over the keys it describes, here and in everything inside."""
    if isinstance(schema, list):
        for item in schema:
            _describe(item)
    if not isinstance(schema, dict):
        return
    for item in schema.values():
        _describe(item)
    text, attributes = schema.get("description", ""), ""
    if text and "properties" in schema:
        text, _, attributes = text.partition("Attributes:\n")
        schema["description"] = _one_line(text)
    for name, meaning in _ATTRIBUTE.findall(attributes):
        if name in schema["properties"]:
            schema["properties"][name]["description"] = _one_line(meaning)


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())
