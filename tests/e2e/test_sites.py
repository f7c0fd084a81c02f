"""Links between switches: shared, read back, measured and changed, in every runtime."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from marks import in_docker_nightly

pytestmark = [pytest.mark.slow]
SITES = Path(__file__).parents[2] / "scenarios" / "sites"
VERDICT = 6

IDLE = """\
name: idle
workload:
  near: {command: [sleep, "600"]}
  far: {command: [sleep, "600"], switch: edge}
links:
  uplink: {between: [edge, core], up: {rate: 4mbit}, down: {rate: 8mbit}}
"""


@pytest.mark.alone
@in_docker_nightly
def test_senders_of_a_site_share_its_uplink(bed: Any, runtime: str) -> None:
    """scenarios/sites: 10.04 s from the first byte to the last, worked out there."""
    for file in SITES.iterdir():
        shutil.copy(file, bed.path)
    up = bed.up("--runtime", runtime, file="sites.yaml")
    done = up.end(within=300.0)
    assert done.status in {0, VERDICT}, done.err
    said = up.folder.log("collector").read_text()
    (count, seconds) = re.findall(r"received (\d+) bytes in ([\d.]+) s", said)[0]
    print(runtime, said)
    assert int(count) == 12_000_000
    assert float(seconds) == pytest.approx(12e6 * 8 * 1514 / 1448 / 10e6, rel=0.02)
    events = [json.loads(line) for line in up.folder.events.read_text().splitlines()]
    rates = {
        one["link"]: one["measured_bits_per_second"] for one in events if one["event"] == "rate"
    }
    assert rates["link uplink up"] == pytest.approx(10e6, rel=0.05)
    assert rates["link backbone down"] == pytest.approx(50e6, rel=0.05)
    last = [one for one in events if one["event"] == "links"][-1]
    assert (last["checked"], last["differences"]) == (6, [])  # four nodes and two links
    assert bed.remains(up.name) == []


@pytest.mark.alone  # it measures rates
@in_docker_nightly
def test_a_link_between_switches_is_shown_measured_and_changed(bed: Any, runtime: str) -> None:
    up = bed.up("--runtime", runtime, file=bed.scenario("idle.yaml", IDLE))
    up.wait_for_event("workload_begun")
    up.wait_for(lambda: up.folder.state().state == "running")

    def shown() -> dict[str, str]:
        rows = bed.run("net", "show", up.name, "--json").json
        (row,) = [row for row in rows if row["node"] == "uplink"]
        assert row["differences"] == []
        return {way: row[f"{way}_found"] for way in ("up", "down")}

    before = shown()
    assert before["up"].startswith("tbf rate 4mbit")
    bed.run("net", "set", up.name, "uplink", "--up", "1mbit")
    assert shown() == {"up": "tbf rate 1mbit burst 3028 B queue 100ms (12500 B)"} | {
        "down": before["down"]
    }
    (found,) = bed.run("net", "probe", up.name, "--json").json
    assert found["link"] == "uplink"
    assert found["up_bits_per_second"] == pytest.approx(1e6, rel=0.05)
    assert found["down_bits_per_second"] == pytest.approx(8e6, rel=0.05)
    bed.run("net", "reset", up.name)
    assert shown() == before
    refused = bed.run("net", "capture", up.name, "uplink", "--seconds", "1")
    assert (refused.status, "uplink" in refused.err) == (2, True)
    bed.run("down", up.name)
    up.end()
    assert bed.remains(up.name) == []
