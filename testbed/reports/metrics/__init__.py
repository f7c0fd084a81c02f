"""Prometheus metrics of a run: each metric is declared once and read from what sinks receive.

``declared`` has the metrics, ``reading`` the sink, ``exporter`` the HTTP server for scrapes,
``discovery`` the target files for Prometheus, ``openmetrics`` the export of ended runs.
"""
