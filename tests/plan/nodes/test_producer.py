"""The nodes that produce streams, and how devices find them."""

from __future__ import annotations

from testbed.plan.make import plan
from testbed.plan.nodes import role_of
from testbed.rpc.tokens import token_of
from testbed.scenario import Override, load_text

TEXT = """\
name: fed
algorithm: scadles
model: digits-cnn
dataset: digits
streams: {rates: {constant: {per_second: 1000}}, producers: 2, link: {up: {rate: 100mbit}}}
workers: {count: 3}
programs: {sink: {command: [iperf3, --client, "{producer1}"]}}
stop: {updates: 1}
"""


def test_devices_are_assigned_to_producers_with_their_own_links() -> None:
    """The switch has ps .1, w0 to w2 .2 to .4, sink .5, then the producers."""
    made = plan(load_text(TEXT), "r1")
    links = {node.name: node.link for node in made.nodes if node.role == "producer"}
    assert {name: link.address for name, link in links.items() if link} == {
        "producer0": "10.77.0.6",
        "producer1": "10.77.0.7",
    }
    assert made.node("sink").command[-1] == "10.77.0.7"
    assert all(link.up.rate == 100_000_000 for link in links.values() if link)
    for name, producer in (("w0", "producer0"), ("w1", "producer1"), ("w2", "producer0")):
        node, link = made.node(name), links[producer]
        assert link is not None
        assert role_of(node).arguments(node, made, secret="s") == {
            "source": f"{link.address}:5001",
            "source_token": token_of(token_of("s", producer), name),
        }


def test_the_number_of_producers_follows_from_the_devices() -> None:
    """3 devices at 1,000 per second are 3,000: two of 1,500; ten times as fast, one per device."""

    def names(*changes: str) -> list[str]:
        overrides = [Override.parse(change) for change in ("streams.producers=null", *changes)]
        text = TEXT.replace("producer1", "ps")
        nodes = plan(load_text(text, overrides=overrides), "r1").nodes
        return [node.name for node in nodes if node.role == "producer"]

    assert names() == ["producer0", "producer1"]
    assert names("streams.rates={constant: {per_second: 64}}") == ["producer0"]
    assert names("time_scale=10.0") == ["producer0", "producer1", "producer2"]
