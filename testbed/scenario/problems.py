"""Converts pydantic's errors to problems with lines and our own messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from testbed.errors import InvalidValue, Problem
from testbed.scenario.document import Document, Keys, Node, Refused, problem_at
from testbed.scenario.per_device import is_law
from testbed.scenario.scalars import display, is_number, is_number_elsewhere
from testbed.scenario.schema_node import SchemaNode, is_shown, one_of
from testbed.scenario.synonyms import nearest, nearest_key, nearest_member
from testbed.values.laws import Law

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%")


def explain(
    errors: Iterable[ErrorDetails], document: Document, *, root: SchemaNode
) -> list[Problem]:
    """Convert validation errors to problems, in the order of their lines.

    Args:
        errors: pydantic's errors for ``document.data``.
        document: the validated document.
        root: schema node of the whole scenario.
    """
    by_path: dict[Keys, list[tuple[ErrorDetails, SchemaNode]]] = {}
    all_errors = list(errors)
    for error in all_errors:
        if not _concerns_refused(error) and not _follows_from_others(error, all_errors):
            path, schema = locate(error, document.root, root)
            by_path.setdefault(path, []).append((error, schema))
    problems = [
        _problem(path, found, document, root)
        for path, found in by_path.items()
        if not (isinstance(found[0][0]["input"], dict) and _has_deeper(path, by_path))
    ]
    return sorted(problems, key=lambda problem: problem.line)


def locate(error: ErrorDetails, node: Node | None, root: SchemaNode) -> tuple[Keys, SchemaNode]:
    """Return the path of an error in the file, and the schema node there.

    Pydantic's location contains labels of union members, and only the full form of families; the
    returned path is as the user wrote it. For an unknown key, the schema node is the enclosing one.
    """
    path: Keys = ()
    schema = root
    parts = error["loc"]
    for index, part in enumerate(parts):
        members = schema.members
        if members:
            if node and node.short:
                name, node = node.short
                path = (*path, name)
            if part in members:
                schema = members[str(part)]
                continue
        if (model := schema.tagged(part)) is not None:
            schema = model  # a union's label
            continue
        inside = schema.enter(part)
        last = index == len(parts) - 1
        if inside is None and not (last and error["type"] == "extra_forbidden"):
            break  # a union's label, such as `constrained-int`
        short = node.short_field(part) if node else None
        if node and short:
            path = (*path, *short)
            for key in short:
                node = node and node.inside(key)
        else:
            node = node and node.inside(part)
            if node or error["type"] == "missing":
                path = (*path, part)
        schema = inside or schema
    return path, schema


def _has_deeper(path: Keys, others: Iterable[Keys]) -> bool:
    """Whether a value inside a mapping is wrong, so a mapping was intended."""
    return any(len(other) > len(path) and other[: len(path)] == path for other in others)


def _concerns_refused(error: ErrorDetails) -> bool:
    value = error["input"]
    if error["type"] == "union_tag_invalid" and isinstance(value, dict):
        value = value.get("name")
    return isinstance(value, Refused)


def _follows_from_others(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Whether a list is too short only because its items are invalid."""
    loc = error["loc"]
    return error["type"] == "too_short" and any(
        other["loc"][: len(loc)] == loc and other["loc"] != loc for other in errors
    )


def _problem(
    path: Keys,
    errors: Sequence[tuple[ErrorDetails, SchemaNode]],
    document: Document,
    root: SchemaNode,
) -> Problem:
    # A value that is not a mapping was not intended as one, if other types are valid too.
    errors = [one for one in errors if one[0]["type"] != "model_type"] or errors
    error, schema = errors[0]
    if len(errors) > 1:  # one error for each type that is allowed here
        found, expected, hint = display(error["input"]), schema.expected, ""
    else:
        found, expected, hint = _words(error, schema)
        hint = hint or _of_another_runtime(error, root)
    return problem_at(document, path, found=found, expected=expected, hint=hint)


def _of_another_runtime(error: ErrorDetails, root: SchemaNode) -> str:
    """Return which runtimes have a key that this one does not know, such as ``hosts``."""
    family, loc = root.enter("runtime"), error["loc"]
    if error["type"] != "extra_forbidden" or loc[0] != "runtime" or family is None:
        return ""
    having = [name for name, member in family.members.items() if loc[-1] in member.fields]
    return f"It is an option of `runtime: {' and '.join(having)}`" if having else ""


def _words(error: ErrorDetails, schema: SchemaNode) -> tuple[str, str, str]:
    """Return what was found, what was expected, and a hint."""
    value = error["input"]
    match error["type"]:
        case "missing":
            return "no such key", schema.expected, ""
        case "extra_forbidden":
            return "an unknown key", one_of(schema.keys), nearest_key(error["loc"][-1], schema.keys)
        case "union_tag_invalid" | "union_tag_not_found":
            return _no_member(value, schema)
        case "value_error":
            found, expected, hint = _refusal(error["ctx"]["error"], value)
            return found, expected, hint or _suggestion(value, schema)
        case "less_than" | "less_than_equal":
            limit = next(iter(error["ctx"].values()))
            unsaid = "" if is_shown(limit) else f" and at most {limit:,}"
            return display(value), schema.expected + unsaid, ""
        case _:
            hint = (
                nearest(value, schema.choices)
                or _suggestion(value, schema)
                or _type_hint(value, schema)
            )
            return display(value), schema.expected, hint


def _no_member(value: Any, schema: SchemaNode) -> tuple[str, str, str]:
    if isinstance(value, dict) and "name" not in value:
        (name, options), *others = value.items() or [("", None)]
        if others or name not in schema.members:
            return "a mapping without `name`", schema.expected, ""
        keys = [key for key in schema.members[name].keys if key != "name"]
        hint = f"Write {{{name}: {{{keys[0]}: {display(options)}}}}}" if len(keys) == 1 else ""
        expected = (
            f"a mapping with {one_of(keys)}" if keys else f"`{name}` alone: it has no options"
        )
        return f"{display(options)} for the options of {name}", expected, hint
    name = value["name"] if isinstance(value, dict) else value
    return display(name), schema.expected, nearest_member(name, list(schema.members))


def _type_hint(value: Any, schema: SchemaNode) -> str:
    """Return advice for a value that YAML parsed as another type than intended."""
    kinds = {option.bare for option in schema.options}
    if str in kinds and isinstance(value, int | float):
        return "Write it in quotes"
    if not isinstance(value, str):
        return ""
    if bool in kinds and value.lower() in ("yes", "no", "on", "off", "true", "false"):
        return "Write true or false, without quotes"
    if kinds & {int, float} and is_number(value):
        return "Write the number without quotes"
    if kinds & {int, float} and is_number_elsewhere(value):
        return "Write numbers in decimal digits, without leading zeros"
    return ""


def _suggestion(value: Any, schema: SchemaNode) -> str:
    """Return how to write the intended value, if known."""
    if "law" in schema.keys and is_law(value):
        return f'Write {{law: "lognormal(1,0.5)", mean: 50ms}} for {Law.WANTED}'
    share = _PERCENT.fullmatch(str(value))
    is_number = float in {option.bare for option in schema.options}
    return f"Write {float(share[1]) / 100:g}" if share and is_number else ""


def _refusal(error: Exception, value: Any) -> tuple[str, str, str]:
    if isinstance(error, InvalidValue):
        return error.found or display(value), error.expected, ""
    return display(value), "", str(error)
