"""Values that every room uses: units, laws of durations, seeds, the data classes of a plan.

Here: pure data types with their text forms, members of a family (``family``), loading of a user's
own module (``user_code``) and the state of a checkpoint (``state``). Not here: anything that knows
a scenario, a run or the kernel.
"""
