"""``python -m testbed``."""

from testbed.cli import run

run()
