"""The YAML forms of a family member (an algorithm, a model, a data set ...).

algorithm: adacomp                            a member whose options all have defaults
algorithm: {name: adacomp, ratio: 0.01}       the full form, to which the others are converted
algorithm: {adacomp: {ratio: 0.01}}           the short form
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


def full_form(value: Any) -> Any:
    """Convert a member in any form to its full form; return anything else unchanged."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and len(value) == 1 and "name" not in value:
        ((name, options),) = value.items()
        if options is None:
            return {"name": name}
        if isinstance(options, dict) and "name" not in options:
            return {"name": name, **options}
    return value


class Named:
    """Annotates a union of members, told apart by ``name``, to accept the two short forms too."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        union = handler.generate_schema(Annotated[source, Field(discriminator="name")])
        return core_schema.no_info_before_validator_function(full_form, union)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema of all three forms; a bare name only if no option is required.

        All refer to one definition of each member's options, in which only they are required.
        """
        union = handler(schema)
        members = union.get("oneOf", [union])
        bare, short = list[str](), dict[str, Any]()
        for member in members:
            options = handler.resolve_ref_schema(member)
            name = options["properties"]["name"]["const"]
            required = [key for key in options.pop("required", ()) if key != "name"]
            short[name] = {**member, "not": {"required": ["name"]}}
            if required:
                options["required"] = required
            else:
                bare.append(name)
                short[name] = {"anyOf": [short[name], {"type": "null"}]}
        one = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
        names = [{"enum": bare}] if bare else []
        mapping = {"type": "object", "properties": short, **one}
        return {"anyOf": [{"oneOf": members, "required": ["name"]}, *names, mapping]}
