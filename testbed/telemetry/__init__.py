"""What happened in a run, and where it is written down: the run folder.

Here: the events and table columns, each declared once (``event_kinds`` and ``rows``;
docs/run-folder.md is checked against them), the files they are written to and read from, and
checkpoints. ``entry`` is an event as it is stored, ``sink`` the interface of its
recipients. Not here: what is computed from the record (``reports``), readings of the kernel
(``host``, ``network``).
"""
