"""The links of a running run, as its agent tells them."""

from __future__ import annotations

from typing import Any

from testbed.run.net import Links


def test_links_have_the_class_of_their_node(small: Any) -> None:
    rows = [{"node": "w2", "up": "noqueue"}, {"node": "ps", "up": "noqueue"}]
    small.agent.answers = [rows]
    setup = small.setup
    links = Links(setup.plan, setup.folder, small.driver, small.agent)
    assert links.show() == [
        {"node": "w2", "class": "slow", "up": "noqueue"},
        {"node": "ps", "class": None, "up": "noqueue"},
    ]
