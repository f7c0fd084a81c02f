"""A scenario in one process on a virtual clock: real gradients, modelled seconds.

It uses the same algorithm files and the same frame as a live run; only the driver differs. Results
depend on the scenario and its seed alone, not on the host or its load.
"""
