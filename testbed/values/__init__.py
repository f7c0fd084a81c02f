"""Data types that all subpackages use: units, distributions of durations, seeds, parts of a plan.

Here: pure data types with their text forms, the YAML forms of a family's members (``family``), the
loading of a user's own module (``user_code``) and the state in a checkpoint (``state``). Not here:
anything that depends on scenarios, runs or the kernel.
"""
