from __future__ import annotations

from pathlib import Path

import pytest

from testbed.datasets import user_cache
from testbed.errors import DataError


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/testbed"),
        ({"HOME": "/h"}, "/h/.cache/testbed"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/testbed"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/testbed"),
    ],
)
def test_the_users_cache(environment: dict[str, str], expected: str) -> None:
    assert user_cache(environment) == Path(expected)


def test_no_cache_at_all() -> None:
    with pytest.raises(DataError, match="neither XDG_CACHE_HOME nor HOME"):
        user_cache({})
