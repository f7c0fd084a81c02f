"""The events and table columns of a run, each declared once.

``kinds`` declares the events, ``names`` their names in the file, and ``rows`` the columns of the
tables; docs/run-folder.md is checked against all of them. ``entry`` is an event as it is stored,
``sink`` the interface of its recipients.
"""
