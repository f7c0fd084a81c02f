"""Nodes of the scenario schema: the type at a path, its description, and the nodes inside."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import TypeAliasType

from testbed.values.family import Named
from testbed.values.text_value import TextValue


@dataclass(frozen=True)
class SchemaNode:
    """A node of the schema, represented by its type annotation.

    Attributes:
        annotation: including all its Annotated parts.
    """

    annotation: Any

    @property
    def bare(self) -> Any:
        """The annotation without its Annotated parts."""
        return self._parted[0]

    @cached_property
    def _parted(self) -> tuple[Any, list[Any]]:
        """The annotation, and its Annotated parts, including those inside pydantic fields."""
        inner, metadata = self.annotation, list[Any]()
        while (named := isinstance(inner, TypeAliasType)) or get_origin(inner) is Annotated:
            inner, *parts = [inner.__value__] if named else get_args(inner)
            for part in parts:
                metadata += part.metadata if isinstance(part, FieldInfo) else [part]
        return inner, metadata

    @property
    def is_family(self) -> bool:
        """Whether a member may be written in a short form."""
        if get_origin(self.bare) in (Union, types.UnionType):
            parts = [part for part in get_args(self.bare) if part is not type(None)]
            if len(parts) == 1:  # it may be left out
                return SchemaNode(parts[0]).is_family
        return any(isinstance(part, Named) for part in self._parted[1])

    @cached_property
    def options(self) -> tuple[SchemaNode, ...]:
        """The types allowed here, without None."""
        bare = self.bare
        if get_origin(bare) in (Union, types.UnionType):
            parts = [SchemaNode(part) for part in get_args(bare) if part is not type(None)]
            return tuple(option for part in parts for option in part.options)
        return (self,)

    @cached_property
    def members(self) -> dict[str, SchemaNode]:
        """The members of a family by name; empty if this is not a family."""
        names = {}
        for option in self.options:
            fields = option.fields
            if "name" in fields:
                names.update(dict.fromkeys(fields["name"].choices, option))
        return names if self.is_family else {}

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The words allowed here, if only certain words are."""
        words = get_args(self.bare) if get_origin(self.bare) is Literal else ()
        return tuple(str(word) for word in words)

    @property
    def fields(self) -> dict[str, SchemaNode]:
        """The nodes inside a mapping with fixed keys, by their key in the file."""
        model = self.bare
        return _fields(model) if isinstance(model, type) and issubclass(model, BaseModel) else {}

    @property
    def keys(self) -> list[str]:
        """The keys that a mapping may have here, sorted."""
        return sorted({key for option in self.options for key in option.fields})

    def enter(self, part: str | int) -> SchemaNode | None:
        """Return the node under a key or an index, or None if the schema has none."""
        for option in self.options:
            kind = get_origin(option.bare)
            if kind is dict and isinstance(part, str):
                return SchemaNode(get_args(option.bare)[1])
            if kind in (tuple, list) and isinstance(part, int):
                return SchemaNode(get_args(option.bare)[0])
            if part in option.fields:
                return option.fields[str(part)]
        return None

    def tagged(self, tag: str | int) -> SchemaNode | None:
        """Return the model that pydantic selected from a union by its tag, the model's name."""
        chosen = (one for one in self.options if one.fields and one.bare.__name__ == tag)
        return next(chosen, None)

    @property
    def expected(self) -> str:
        """What is valid here, in words."""
        members = self.members
        if members:
            return one_of(sorted(members))
        return " or ".join(option._in_words() for option in self.options)

    def _in_words(self) -> str:
        kind = get_origin(self.bare) or self.bare
        if kind is Literal:
            return one_of(self.choices)
        if self.fields:
            return f"a mapping with the keys {', '.join(self.fields)}"
        if kind in (tuple, list):
            item = SchemaNode(get_args(self.bare)[0])
            return f"a list, each item {item.expected}"
        if kind is dict:
            return "a mapping"
        if isinstance(kind, type) and issubclass(kind, TextValue):
            return kind.WANTED
        nouns = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        return nouns.get(kind, "another value") + self._limits()

    def _limits(self) -> str:
        limits = []
        pattern = ""
        for part in self._parted[1]:
            match part:
                case annotated_types.Gt():
                    limits.append(f"above {_figure(part.gt)}")
                case annotated_types.Ge():
                    limits.append(f"of at least {_figure(part.ge)}")
                case annotated_types.Lt() if is_shown(part.lt):
                    limits.append(f"below {_figure(part.lt)}")
                case annotated_types.Le() if is_shown(part.le):
                    limits.append(f"at most {_figure(part.le)}")
                case _ if getattr(part, "pattern", None):
                    pattern = f" that matches {part.pattern}"
        return (" " if limits else "") + " and ".join(limits) + pattern


def one_of(words: Sequence[str]) -> str:
    """Format words as a choice."""
    return f"`{words[0]}`" if len(words) == 1 else f"one of {', '.join(words)}"


def is_shown(limit: Any) -> bool:
    """Whether an upper limit is worth showing to users, or only keeps arithmetic sound."""
    return bool(limit < 10**12)


def _figure(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


@cache
def _fields(model: type[BaseModel]) -> dict[str, SchemaNode]:
    """Return the nodes of a model's fields, by their key in the file.

    Made once per class, as are their options and members, instead of once per setting: a study of
    16 runs loads over ten times faster.
    """
    hints = get_type_hints(model, include_extras=True)
    return {
        field.alias or name: SchemaNode(hints[name]) for name, field in model.model_fields.items()
    }
