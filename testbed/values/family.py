"""The YAML forms of a family member (an algorithm, a model, a data set ...).

algorithm: adacomp                            a member whose options all have defaults
algorithm: {name: adacomp, ratio: 0.01}       the full form, to which the others are converted
algorithm: {adacomp: {ratio: 0.01}}           the short form
"""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic_core import CoreSchema


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


class Named(BeforeValidator):
    """Annotates a discriminated union to accept the two short forms too."""

    def __init__(self) -> None:
        super().__init__(full_form)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema of all three forms; a bare name only if no option is required."""
        full = handler(schema)
        short: list[dict[str, Any]] = []
        for member in full.get("oneOf", [full]):
            options = dict(handler.resolve_ref_schema(member))
            properties = dict(options["properties"])
            name = properties.pop("name")["const"]
            required = [key for key in options.get("required", []) if key != "name"]
            if not required:
                short.append({"const": name})
            inner = {**options, "properties": properties, "required": required}
            short.append(
                {
                    "type": "object",
                    "properties": {
                        name: inner if required else {"anyOf": [inner, {"type": "null"}]}
                    },
                    "required": [name],
                    "additionalProperties": False,
                }
            )
        return {"anyOf": [full, *short]}
