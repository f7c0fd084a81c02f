"""Containers that no launch has named yet, when the run ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testbed.runtimes.base import ContainerSpec
from testbed.runtimes.docker.engine import connect
from testbed.values.topology import NetworkSpec, Plan

pytestmark = pytest.mark.docker


def test_a_container_that_no_launch_has_named_ends_with_the_run(
    driver: Any, start_run: Any, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    from docker.errors import APIError

    with start_run() as run, connect() as engine:
        plan = Plan(run.folder.name, (), NetworkSpec(), "warm", {})
        driver.contain(plan, run.folder, [ContainerSpec(run.node("w0"), (), run.folder.log("w0"))])
        name = f"testbed-{run.folder.name}-w0"
        assert engine.inspect_container(name)["State"]["Running"]
        run.lifeline.close()  # as when the controller dies
        eventually(lambda: not engine.inspect_container(name)["State"]["Running"])
        with pytest.raises(APIError, match="control/mark"):
            engine.start(name)  # as late as an engine may do what the controller asked for
