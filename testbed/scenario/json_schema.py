"""The JSON schema of a scenario, with which editors complete and check input."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from testbed.scenario.flower import WorkloadFile
from testbed.scenario.parse import IGNORED_PREFIX
from testbed.scenario.schema import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTITY = "urn:edge-testbed:scenario:1"
"""A name, not an address; it ends with the scenario's `version`."""


def json_schema(document: type[BaseModel] = Scenario) -> dict[str, Any]:
    """Return the schema; docstrings describe its keys."""
    schema = _scenario() if document is Scenario else document.model_json_schema(by_alias=True)
    return {"$schema": DIALECT, **schema}


def file_schema(document: type[Scenario | WorkloadFile]) -> dict[str, Any]:
    """Return the schema of one kind of scenario, which may extend another, and have anchors."""
    schema = document.model_json_schema(by_alias=True)
    _add_extends(schema)
    ignored = {"description": "Ignored: for your YAML anchors."}
    schema["patternProperties"] = {f"^{IGNORED_PREFIX}": ignored}
    return schema


def _scenario() -> dict[str, Any]:
    """Return the schema of a scenario of either kind: it is a workload if it has that key."""
    training, workload = file_schema(Scenario), file_schema(WorkloadFile)
    title, description = training.pop("title"), training.pop("description")
    # Where they differ, those of a training require fewer keys, which another document may have.
    definitions = {**workload.pop("$defs"), **training.pop("$defs")}
    kinds = {"then": workload, "else": {**training, "title": "Training"}}
    return {
        **{"$id": IDENTITY, "title": title, "description": description, "type": "object"},
        **{"if": {"required": ["workload"]}, **kinds, "$defs": definitions},
    }


def json_schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


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
