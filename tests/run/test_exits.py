"""How the end of a node is described."""

from __future__ import annotations

from typing import Any

from testbed.run.watch import describe_exit
from testbed.runtimes.agent.launch import Exit


def test_what_to_set_if_the_node_that_computes_was_out_of_memory(make_small: Any) -> None:
    """One of its processes was killed, and so it ended; it has no `memory` to raise."""
    node = make_small("compute=shared", "workers.classes.slow.memory=null").setup.plan.node(
        "compute"
    )
    how = describe_exit(node, Exit("compute", 128 + 9, out_of_memory=True))
    assert how.startswith("compute ran out of memory: the kernel killed it at its limit of half of")
    assert how.endswith(
        "; it needs less with fewer `compute.processes`, or a smaller `compute.vmap` or "
        "`workers.batch_size`"
    )
