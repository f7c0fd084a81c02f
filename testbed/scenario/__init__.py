"""A scenario is one file, one experiment: its schema, and how to load, override and write it."""

from testbed.scenario.dump import dump
from testbed.scenario.json_schema import json_schema, json_schema_text
from testbed.scenario.load import load, load_text
from testbed.scenario.override import Override
from testbed.scenario.schema import Scenario

__all__ = [
    "Override",
    "Scenario",
    "dump",
    "json_schema",
    "json_schema_text",
    "load",
    "load_text",
]
