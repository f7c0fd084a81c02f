"""The JSON schema of a scenario, with which editors complete and check input."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from testbed.scenario.flower import WorkloadFile
from testbed.scenario.parse import IGNORED_PREFIX
from testbed.scenario.schema import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTITY = "urn:edge-testbed:scenario:1"
"""A name, not an address; it ends with the scenario's `version`."""

SHORT = 200
"""Length of the JSON text of a part that is not worth a definition of its own."""

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def json_schema(document: type[BaseModel] = Scenario) -> dict[str, Any]:
    """Return the schema, with keys described by the ``Attributes`` of their class's docstring."""
    schema = _scenario() if document is Scenario else _of(document)
    _define_repeated(schema)
    return {"$schema": DIALECT, **schema}


def training_schema() -> dict[str, Any]:
    """Return the schema of a scenario that is a training."""
    schema = _of(Scenario, in_a_file=True)
    _define_repeated(schema)
    return schema


def workload_schema() -> dict[str, Any]:
    """Return the schema of a scenario that is a workload."""
    schema = _of(WorkloadFile, in_a_file=True)
    _define_repeated(schema)
    return schema


def _scenario() -> dict[str, Any]:
    """Return the schema of a scenario of either kind: it is a workload if it has that key."""
    training, workload = _of(Scenario, in_a_file=True), _of(WorkloadFile, in_a_file=True)
    title, description = training.pop("title"), training.pop("description")
    # Where they differ, those of a training require fewer keys, which another document may have.
    definitions = {**workload.pop("$defs"), **training.pop("$defs")}
    kinds = {"then": workload, "else": {**training, "title": "Training"}}
    return {
        **{"$id": IDENTITY, "title": title, "description": description, "type": "object"},
        **{"if": {"required": ["workload"]}, **kinds, "$defs": definitions},
    }


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


def _define_repeated(schema: dict[str, Any]) -> None:
    """Move titled parts that repeat to ``$defs``, and refer to them.

    Each algorithm has all options of the families it uses (optimizers, selections), in its full
    form and in its short form.
    """
    times = Counter(json.dumps(part) for part in _titled(schema))
    definitions = schema["$defs"]
    references: dict[str, dict[str, str]] = {}

    def shared(part: Any) -> Any:
        if isinstance(part, list):
            return [shared(item) for item in part]
        if not isinstance(part, dict):
            return part
        text = json.dumps(part)
        short = {key: shared(item) for key, item in part.items()}
        if times[text] < 2 or len(text) <= SHORT:
            return short
        if text not in references:
            name = _free(part["title"].replace(" ", ""), definitions)
            references[text] = {"$ref": f"#/$defs/{name}"}
            definitions[name] = short
        return references[text]

    for key, part in list(schema.items()):
        schema[key] = shared(part) if key != "$defs" else part
    for name, part in list(definitions.items()):
        definitions[name] = {key: shared(item) for key, item in part.items()}


def _titled(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a schema that have a title, at any depth."""
    if isinstance(part, dict) and isinstance(part.get("title"), str):
        yield part
    if isinstance(part, dict | list):
        for item in part.values() if isinstance(part, dict) else part:
            yield from _titled(item)


def _free(name: str, taken: dict[str, Any]) -> str:
    """Return the name, with the lowest number that makes it a new one if it is taken."""
    numbered = (f"{name}{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in taken)


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
