"""Reference pages, generated from the JSON schema of scenarios and from the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import click

import testbed

Schema = Mapping[str, Any]

EXACT = 2**53
"""Limits from this on only say that a number has 64 bits."""


def scenario_page(schema: Schema) -> str:
    """Return the page of a scenario's fields."""
    intro = "A member of a family has a name and options: `algorithm: adacomp`, or "
    example = "`algorithm: {adacomp: {ratio: 0.01}}`."
    return fields_page("Fields of a scenario", intro + example, schema)


def workload_page(schema: Schema) -> str:
    """Return the page of the fields of a scenario with programs in place of a training."""
    intro = "The fields of a scenario that has `workload` in place of a training."
    return fields_page("Fields of a workload", intro, schema)


def study_page(schema: Schema) -> str:
    """Return the page of a study's fields, without those of its scenario."""
    intro = (
        "Its scenario has the fields [of a scenario](scenario.md) or [of a workload](workload.md)."
    )
    return fields_page("Fields of a study", intro, schema)


def fields_page(title: str, intro: str, schema: Schema) -> str:
    """Return a page with a table of fields for a document and for each of its definitions."""
    definitions = schema["$defs"]
    reached = [*_reached(schema, definitions)]
    parts = [f"# {title}\n\n{intro}\n", _table(schema, definitions)]
    for name in reached:
        member = definitions[name].get("properties", {}).get("name", {}).get("const")
        called = f"Name: `{member}`. " if member else ""
        parts.append(f"## {name}\n\n{called}{definitions[name].get('description', '')}\n")
        parts.append(_table(definitions[name], definitions))
    return "\n".join(parts)


def commands_page(command: click.Group) -> str:
    """Return a page with the help of each command, as ``--help`` prints it."""
    parts = ["# Options of every command\n"]
    for path, context in _contexts(command, None, "testbed"):
        parts.append(f"## {path}\n\n```text\n{context.get_help()}\n```\n")
    return "\n".join(parts)


def python_page() -> str:
    """Return a page that has Sphinx insert the documentation of the package's functions."""
    parts = ["# Functions of the package\n", "```{eval-rst}"]
    for name in testbed.__all__:
        if isinstance(getattr(testbed, name), type):
            parts.append(f".. autoclass:: testbed.{name}\n   :members:\n")
        elif callable(getattr(testbed, name)):
            parts.append(f".. autofunction:: testbed.{name}\n")
    return "\n".join([*parts, "```\n"])


def _contexts(
    command: click.Command, parent: click.Context | None, path: str
) -> Iterator[tuple[str, click.Context]]:
    context = click.Context(command, parent=parent, info_name=path.rpartition(" ")[2])
    yield path, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _contexts(inner, context, f"{path} {name}")


def _reached(schema: Schema, definitions: Schema) -> Iterator[str]:
    """Yield the names of the definitions with fields or members, each after one that names it."""
    seen: set[str] = set()
    waiting = [*_names(schema)]
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        definition = definitions[name]
        waiting = [*_names(definition), *waiting]
        if _has_section(definition):
            yield name


def _names(part: Any) -> Iterator[str]:
    """Yield the names of the definitions that a part refers to, outside the definitions."""
    if isinstance(part, Mapping):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for key, item in part.items():
            if key != "$defs":
                yield from _names(item)
    elif isinstance(part, list):
        for item in part:
            yield from _names(item)


def _has_section(definition: Schema) -> bool:
    return "properties" in definition or _members(definition) is not None


def _members(part: Schema) -> list[Schema] | None:
    """Return the full forms of a family's members; None if a part is not a family."""
    full = next(iter(part.get("anyOf", [])), part)
    members: list[Schema] | None = full.get("oneOf") if "name" in full.get("required", ()) else None
    return members


def _table(schema: Schema, definitions: Schema) -> str:
    members = _members(schema)
    if members is not None:
        return f"One of {', '.join(_type(member, definitions) for member in members)}.\n"
    lines = ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        if name == "name" and "const" in field:
            continue  # of a family's member
        shown = {**_resolved(field, definitions), **field}
        default = "required" if name in required else _default(shown)
        cells = (f"`{name}`", _type(field, definitions), default, shown.get("description", ""))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _default(field: Schema) -> str:
    """Return a default as YAML has it; nothing for none, and for defaults of many fields."""
    default = field.get("default")
    if default is None or isinstance(default, Mapping):
        return ""
    return f"`{json.dumps(default)}`"


def _resolved(part: Schema, definitions: Schema) -> Schema:
    resolved: Schema = definitions.get(part.get("$ref", "").rpartition("/")[2], {})
    return resolved


def _type(part: Schema, definitions: Schema) -> str:
    """Return the type of a field in words, with links to the sections of definitions."""
    name = part.get("$ref", "").rpartition("/")[2]
    if name and _has_section(definitions[name]):
        shown = definitions[name].get("properties", {}).get("name", {}).get("const", name)
        return f"[{shown}](#{name.lower()})"
    if name:
        return _type(definitions[name], definitions)
    if (members := _members(part)) is not None:
        return "one of " + ", ".join(_type(member, definitions) for member in members)
    if options := part.get("anyOf", part.get("oneOf")):
        return " or ".join(dict.fromkeys(_type(option, definitions) for option in options))
    return _plain_type(part, definitions)


def _plain_type(part: Schema, definitions: Schema) -> str:
    if values := part.get("enum", [part["const"]] if "const" in part else []):
        return ", ".join(f"`{json.dumps(value)}`" for value in values)
    if part.get("type") == "array":
        return f"list of {_type(part.get('items', {}), definitions)}"
    if isinstance(kinds := part.get("type"), list):
        parts = [{"type": kind} if kind == "null" else {**part, "type": kind} for kind in kinds]
        return " or ".join(_type(one, definitions) for one in parts)
    inner = [part.get("additionalProperties"), *part.get("patternProperties", {}).values()]
    types = [_type(one, definitions) for one in inner if isinstance(one, Mapping)]
    if types:
        return f"mapping to {types[0]}"
    return f"{part.get('type', 'any')}{_range(part)}"


def _range(part: Schema) -> str:
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [
        f"{sign} {part[key]:g}" for key, sign in bounds.items() if abs(part.get(key, inf)) < EXACT
    ]
    return f" {', '.join(limits)}" if limits else ""
