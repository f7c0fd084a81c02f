"""What nodes of a workload send to one another without TCP."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]
VERDICT = 6

DATAGRAMS = """\
name: datagrams
workload:
  sink: {command: [sleep, "600"], end: noticed, switch: cloud}
  other: {command: [sleep, "600"], end: noticed}
  source:
    command:
      - PYTHON
      - -c
      - |
        import socket, sys
        own = socket.socket(type=socket.SOCK_DGRAM)
        for host, count in (("sink", 250), ("other", 40)):
            for _ in range(count):
                own.sendto(bytes(1000), (host, 9))
links:
  uplink: {between: [core, cloud], up: {rate: 100mbit, queue: 1s}}
"""


def test_datagrams_are_counted_by_pair_once_on_two_switches(bed: Any) -> None:
    """A datagram of 1,000 B is a frame of 1,042 B: 14 of Ethernet, 20 of IP and 8 of UDP more."""
    up = bed.up(file=bed.scenario("datagrams.yaml", DATAGRAMS.replace("PYTHON", sys.executable)))
    done = up.end()
    assert done.status in {0, VERDICT}, done.err
    pairs = json.loads(up.folder.summary.read_text())["pairs"]
    for peer, count in (("sink", 250), ("other", 40)):
        found = pairs["source"][peer]
        assert (found["frame_bytes"], found["packets"]) == (count * 1042, count)
        assert (found["sent_bytes"], found["round_trip_seconds"]) == (0, None)
    assert "260.5 KB" in bed.run("report", up.name).out
    assert bed.remains(up.name) == []
