from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def testbed_data() -> dict[str, str]:
    """An environment that leads to real data sets; empty on a machine without any."""
    folder = os.environ.get("TESTBED_DATA", "")
    return {"TESTBED_DATA": folder} if folder else {}
