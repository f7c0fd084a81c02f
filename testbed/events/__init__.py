"""What happens in a run and what is counted there, each declared once.

``kinds`` has the events, ``names`` what they are called in the file, and ``rows`` the columns of
the tables; docs/run-folder.md is checked against all. ``entry`` is an event as it is written down,
``sink`` whoever is told of it.
"""
