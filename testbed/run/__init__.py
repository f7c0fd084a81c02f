"""From a scenario to a finished run: plan, deploy, watch, collect, and always tear down.

Here: the controller of a live run, its faults and its checks of the host, and the start of a
simulation. Not here: how a container is created (``runtimes``), how time passes in a simulation
(``simulation``), what the record says afterwards (``reports``).
"""
