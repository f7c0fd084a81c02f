from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed.errors import HostError
from testbed.network.netem import check_netem, kernel_has_netem, owned_links, without_netem
from testbed.values.topology import Direction, NodeSpec
from testbed.values.units import Duration, Rate

RATE = Rate.parse("1mbit")
UP = Direction(rate=RATE, delay=Duration.parse("20ms"), loss=0.01, queue=Duration.parse("200ms"))
DOWN = Direction(delay=Duration.parse("5ms"))


def test_with_netem_nothing_is_omitted(spec: Callable[..., NodeSpec]) -> None:
    assert check_netem(owned_links([spec("w0", 2, up=UP)]), missing="fail", present=True) == ()


def test_settings_without_netem_are_kept(spec: Callable[..., NodeSpec]) -> None:
    nodes = [spec("w0", 2, up=Direction(rate=RATE))]
    assert check_netem(owned_links(nodes), missing="fail", present=False) == ()


def test_the_refusal_names_class_direction_field_and_kernel_option(
    spec: Callable[..., NodeSpec],
) -> None:
    nodes = [spec("ps", 1, role="ps", down=DOWN), spec("w0", 2, up=UP), spec("w1", 3, up=UP)]
    with pytest.raises(HostError) as refusal:
        check_netem(owned_links(nodes), missing="fail", present=False)
    assert refusal.value.message == (
        "this kernel has no netem, which is needed for ps: down.delay 5ms; "
        "class slow: up.delay 20ms; class slow: up.loss 0.01."
    )
    assert "CONFIG_NET_SCH_NETEM" in refusal.value.hint
    assert "sch_netem" in refusal.value.hint


def test_warn_says_what_is_omitted_and_keeps_the_rate(spec: Callable[..., NodeSpec]) -> None:
    node = spec("w0", 2, up=UP)
    left_out = check_netem(owned_links([node]), missing="warn", present=False)
    assert left_out == ("class slow: up.delay 20ms", "class slow: up.loss 0.01")
    assert node.link is not None
    assert without_netem(node.link).up == Direction(rate=RATE, queue=Duration.parse("200ms"))


@pytest.mark.root
def test_the_check_for_netem_leaves_nothing_behind() -> None:
    from testbed.host.namespaces import LOOPBACK_INDEX
    from testbed.network import tc
    from testbed.network.interfaces import sockets

    assert kernel_has_netem() in (True, False)
    with sockets() as here:
        assert tc.read_back(here.rtnetlink, LOOPBACK_INDEX) is None
