"""The JSON schema of a study; it contains the scenario's schema for inline scenarios."""

from __future__ import annotations

import json
from typing import Any

from testbed.scenario import json_schema
from testbed.studies.document import StudyDocument


def study_schema() -> dict[str, Any]:
    """Return the schema. An inline scenario may lack the fields that the study varies."""
    scenario = json_schema()
    parts = scenario.pop("$defs")
    for key in ("$schema", "$id", "if", "then"):
        scenario.pop(key, None)
    schema = json_schema(StudyDocument)
    schema["$defs"] = {**schema["$defs"], **parts, "Scenario": scenario}
    described = {"description": schema["properties"]["scenario"]["description"]}
    either = [{"type": "string"}, {"$ref": "#/$defs/Scenario"}]
    schema["properties"]["scenario"] = {"anyOf": either, **described}
    return schema


def study_schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(study_schema(), indent=2, ensure_ascii=False) + "\n"
