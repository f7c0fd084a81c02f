"""A scenario in one process on a virtual clock: real gradients, modelled seconds.

Here: the event queue, modelled devices and links, and the processes that compute gradients. It uses
the same algorithm files and the same frame as a live run; only the driver differs. Not here:
algorithms (``algorithms``), the share of a link (``network``). Results depend on the scenario and
its seed alone, not on the host or its load.
"""
