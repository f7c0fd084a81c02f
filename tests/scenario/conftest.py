"""A small scenario as a starting point for the tests of this folder."""

import pytest

SMALL = """\
name: small
algorithm: adacomp
model: digits-cnn
dataset: digits
workers:
  count: 4
  classes:
    fast: {share: 0.5, link: {up: {rate: 10mbit}}}
    slow: {share: 0.5, speed: 50ms}
stop: {updates: 100}
"""


@pytest.fixture(scope="session")
def small() -> str:
    """YAML of a valid scenario."""
    return SMALL
