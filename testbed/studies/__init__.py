"""Studies: a scenario, the factors that vary, and a comparison with a paper's results.

Here: the study's file, its cases and seeds, sweeps, kept results, and the verdict on each
expectation. Not here: a single run (``run``), a single run's measures (``reports``).
"""

from testbed.studies.json_schema import json_schema_text
from testbed.studies.load import is_study, load_study, read_study
from testbed.studies.study import Study

__all__ = ["Study", "is_study", "json_schema_text", "load_study", "read_study"]
