"""The JSON schema of the files of scenarios and studies: editors complete and check them by it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import NullableSchema, WithDefaultSchema

from testbed.scenario.flower import WorkloadFile
from testbed.scenario.parse import IGNORED_PREFIX
from testbed.scenario.schema import Scenario
from testbed.studies.document import StudyDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTITY = "urn:edge-testbed:scenario:1"
"""A name, not an address; it ends with the scenario's `version`."""


class _Short(GenerateJsonSchema):
    """Writes what takes few lines: an optional value has two types.

    Titles that only repeat a key are left out, and defaults that say nothing: null, no field set.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: NullableSchema) -> dict[str, Any]:
        generated = super().nullable_schema(schema)
        match generated.get("anyOf"):
            case [{"type": str(kind)} as inner, {"type": "null"}] if "enum" not in inner:
                return {**inner, "type": [kind, "null"]}
        return generated

    def default_schema(self, schema: WithDefaultSchema) -> dict[str, Any]:
        generated = super().default_schema(schema)
        if generated.get("default") in (None, {}):
            generated.pop("default", None)
        return generated

    def encode_default(self, dft: Any) -> Any:
        return _without_nulls(super().encode_default(dft))


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _without_nulls(item) for key, item in value.items()}
    return {key: item for key, item in inner.items() if item not in (None, {})}


def model_schema(document: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of one kind of file; docstrings describe its keys."""
    return document.model_json_schema(by_alias=True, schema_generator=_Short)


def file_schema(document: type[Scenario | WorkloadFile]) -> dict[str, Any]:
    """Return the schema of one kind of scenario, which may extend another, and have anchors."""
    schema = model_schema(document)
    _add_extends(schema)
    ignored = {"description": "Ignored: for your YAML anchors."}
    schema["patternProperties"] = {f"^{IGNORED_PREFIX}": ignored}
    return schema


def json_schema() -> dict[str, Any]:
    """Return the schema of a file of any kind; its keys tell which: a study, or which scenario."""
    study, workload, training = (
        model_schema(StudyDocument),
        file_schema(WorkloadFile),
        file_schema(Scenario),
    )
    # Where they differ, those of a training require fewer keys, which another document may have.
    definitions = {**study.pop("$defs"), **workload.pop("$defs"), **training.pop("$defs")}
    kinds = {"Workload": workload, "Scenario": training}
    alone = {name: {key: kind.pop(key) for key in ("if", "then")} for name, kind in kinds.items()}
    # A scenario inside a study may lack the keys that the study varies.
    study["properties"]["scenario"]["anyOf"][1] = {"type": "object", **_of_two({}, {})}
    # Editors propose those keys by which kinds are told apart only if they are properties here.
    telling = {
        key: {"description": kind["properties"][key]["description"]}
        for key, kind in (("scenario", study), ("vary", study), ("workload", workload))
    }
    return {
        **{"$schema": DIALECT, "$id": IDENTITY, "title": "Scenario or study", "type": "object"},
        "properties": telling,
        "if": {"anyOf": [{"required": ["scenario"]}, {"required": ["vary"]}]},
        "then": {"$ref": "#/$defs/Study"},
        "else": _of_two(alone["Workload"], alone["Scenario"]),
        "$defs": {**definitions, **kinds, "Study": study},
    }


def json_schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _of_two(workload: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a scenario of either kind, with further conditions on each."""
    return {
        "if": {"required": ["workload"]},
        "then": {"$ref": "#/$defs/Workload", **workload},
        "else": {"$ref": "#/$defs/Scenario", **training},
    }


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

    Values of other types, such as null, are affected by neither keyword. One of a field's forms
    that itself requires keys of a definition keeps them.
    """
    taken = {"required": part.pop("required")} if "required" in part else {}
    inside = {}
    for name, field in part.get("properties", {}).items():
        forms = [form for form in field.get("anyOf", [field]) if "required" not in form]
        for form in forms:
            definition = definitions.get(form.get("$ref", "").rpartition("/")[2], {})
            if "properties" in definition and (inner := _take_required(definition, definitions)):
                inside[name] = inner
    return {**taken, "properties": inside} if inside else taken
