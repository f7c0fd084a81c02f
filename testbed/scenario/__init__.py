"""A scenario is one file, one experiment: its schema, and how to load, override and write it.

Here: YAML with the lines of its values, the fields and their checks, and the experiment that a
scenario describes (``experiment``): its model, data and algorithm. Not here: members of a family
(``algorithms``, ``models``, ``datasets``, ``faults``, ``runtimes``), which declare their own
fields, and the nodes (``plan``).
"""

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
