"""The links of a running run, as its agent tells them."""

from __future__ import annotations

from typing import Any

from testbed.run.net import Links


def test_links_of_an_agent_of_an_older_version_have_the_usual_mtu(small: Any) -> None:
    rows = [{"node": "w2", "up": "noqueue"}, {"node": "ps", "up": "noqueue", "mtu": 1400}]
    small.agent.answers = [rows]
    setup = small.setup
    links = Links(setup.plan, setup.folder, small.driver, small.agent)
    assert links.show() == [
        {"node": "w2", "class": "slow", "mtu": 1500, "up": "noqueue"},
        {"node": "ps", "class": None, "mtu": 1400, "up": "noqueue"},
    ]
