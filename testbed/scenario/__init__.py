"""A scenario is one file, one experiment: its schema, and how to load, override and write it.

Here: YAML with the lines of its values, the fields and their checks, and the experiment that a
scenario describes (``experiment``): its model, data and algorithm. Not here: members of a family
(``algorithms``, ``models``, ``datasets``, ``faults``, ``runtimes``), which declare their own
fields, and the nodes (``plan``).
"""

from testbed.scenario.dump import dump as dump
from testbed.scenario.load import load as load
from testbed.scenario.load import load_text as load_text
from testbed.scenario.override import Override as Override
from testbed.scenario.schema import Scenario as Scenario
