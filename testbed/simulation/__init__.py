"""A scenario in one process on a virtual clock: real gradients, modelled seconds.

The same algorithm files and the same frame as live; what differs is who drives them. Results depend
on the scenario and its seed alone, not on the host or on how busy it is.
"""
