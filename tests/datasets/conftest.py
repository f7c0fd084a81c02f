from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def testbed_data() -> dict[str, str]:
    """An environment in which real data sets are found; empty on a machine that has none."""
    folder = os.environ.get("TESTBED_DATA", "")
    return {"TESTBED_DATA": folder} if folder else {}
