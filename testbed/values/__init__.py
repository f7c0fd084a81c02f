"""Data types that all subpackages use: units, distributions of durations, seeds, parts of a plan.

The subpackage contains data types with their text forms, the YAML forms of a family's members
(``family``), loading of a user's own module (``user_code``) and the state in a checkpoint
(``state``). It depends on neither scenarios nor runs nor the kernel.
"""
