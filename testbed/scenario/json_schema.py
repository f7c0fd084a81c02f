"""The JSON schema of a scenario, with which editors complete and check input."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel

from testbed.scenario.parse import IGNORED_PREFIX
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTITY = "urn:edge-testbed:scenario:1"
"""A name, not an address; it ends with the scenario's `version`."""

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def json_schema(document: type[BaseModel] = Scenario) -> dict[str, Any]:
    """Return the schema, with keys described by the ``Attributes`` of their class's docstring."""
    if document is not Scenario:
        return {"$schema": DIALECT, **_of(document)}
    training, workload = training_schema(), _of(Workload, in_a_file=True)
    title, description = training.pop("title"), training.pop("description")
    definitions = {**workload.pop("$defs"), **training.pop("$defs")}
    kinds = {"then": workload, "else": {**training, "title": "Training"}}
    return {
        **{"$schema": DIALECT, "$id": IDENTITY, "title": title, "description": description},
        **{"type": "object", "if": {"required": ["workload"]}, **kinds, "$defs": definitions},
    }


def training_schema() -> dict[str, Any]:
    """Return the schema of a scenario that is a training."""
    return _of(Scenario, in_a_file=True)


def _of(document: type[BaseModel], *, in_a_file: bool = False) -> dict[str, Any]:
    """Return the schema of a document; one ``in_a_file`` may extend another, and have anchors."""
    schema = document.model_json_schema(by_alias=True)
    _describe(schema)
    if in_a_file:
        _add_extends(schema)
        ignored = {"description": "Ignored: for your YAML anchors."}
        schema["patternProperties"] = {f"^{IGNORED_PREFIX}": ignored}
    return schema


def json_schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _describe(schema: Any) -> None:
    """Move attribute descriptions from each docstring to its keys, recursively."""
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
    for name, meaning in reversed(_ATTRIBUTE.findall(attributes)):  # a class is before its bases
        if name in schema["properties"]:
            schema["properties"][name]["description"] = _one_line(meaning)


def _add_extends(schema: dict[str, Any]) -> None:
    """Allow ``extends``, in which case required keys may be in the extended document."""
    alone = _take_required(schema, schema["$defs"])
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "A base scenario, relative to this file, which then only has the changes.",
    }
    schema["if"] = {"not": {"required": ["extends"]}}
    schema["then"] = alone


def _take_required(part: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Remove the required keys of a mapping and its children; return a schema of only those.

    Values of other types, such as null, are affected by neither keyword.
    """
    taken = {"required": part.pop("required")} if "required" in part else {}
    inside = {}
    for name, field in part.get("properties", {}).items():
        for option in field.get("anyOf", [field]):
            definition = definitions.get(option.get("$ref", "").rpartition("/")[2], {})
            if "properties" in definition and (inner := _take_required(definition, definitions)):
                inside[name] = inner
    return {**taken, "properties": inside} if inside else taken


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())
