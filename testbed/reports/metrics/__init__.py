"""Prometheus metrics of a run: each metric is declared once and read from what sinks receive.

``declared`` has the metrics, ``scraped`` what their sinks have in common, ``reading`` that of a
training and ``workload`` that of a workload, ``exporter`` the HTTP server for scrapes,
``discovery`` the target files for Prometheus, ``openmetrics`` the export of ended runs.
"""
