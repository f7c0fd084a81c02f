"""From a scenario to the plan of its nodes, and the plan's file. Pure except for the file.

Here: which nodes a scenario has, one file per role in ``nodes``, their addresses, links, CPUs and
budget of memory. Not here: the data classes of a plan (``values.topology``), which the code that
creates containers uses without knowing a scenario, and the creation itself (``run``).
"""
