"""A run as Prometheus sees it: every metric declared once, read from what is told to sinks.

``declared`` has the metrics, ``reading`` the sink, ``exporter`` what answers a scrape,
``discovery`` where a Prometheus finds the runs, ``openmetrics`` the same of a run that is over.
"""
