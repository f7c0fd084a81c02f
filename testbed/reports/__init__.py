"""Measures, verdicts, tables, figures and metrics from the record of a run.

Here: everything computed from events and rows, after a run or while it is active (``metrics``), and
its formats: the live display, pages, exports, Prometheus. Not here: writing the record
(``telemetry``), comparing runs with a paper (``studies``), what a command prints (``cli``).
"""
