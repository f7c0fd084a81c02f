"""CPU time of what Slim-DP and Quant-DP do to a vector: python tests/bench/coding.py [MILLIONS ...]

On arrays alone: no network, no frame. Each step apart, in milliseconds and for a million entries,
and as the ``codec:`` of a scenario. ``scenarios/slim_dp/savings.py`` reads what ``--json`` writes.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from testbed.compress.core_explorer import draw_explorer, select_core, sizes
from testbed.compress.qsgd import Buckets, dequantise, quantise
from testbed.payloads.keyed import signature_of

ENOUGH_SECONDS = 2.0
BUCKET = 512


def cpu_seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """The median of some calls, three at least, and what the last of them made."""
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < ENOUGH_SECONDS:
        start = time.thread_time()
        made = call()
        taken.append(time.thread_time() - start)
    return median(taken), made


def measured(size: int, alpha: float, epsilon: float) -> dict[str, float]:
    """Seconds of every step at a vector of so many entries, drawn from a normal law."""
    rng = np.random.default_rng(0)
    vector = rng.standard_normal(size, np.float32)
    core_size, explorer_size = sizes(size, alpha, epsilon)
    buckets = Buckets.of([size], BUCKET)
    seconds: dict[str, float] = {}
    seconds["select"], core = cpu_seconds(lambda: select_core(vector, core_size))
    seconds["sign"], _ = cpu_seconds(lambda: signature_of(core))
    seconds["draw"], explorer = cpu_seconds(
        lambda: draw_explorer(core, size, explorer_size, rng=rng)
    )
    seconds["extract"], parts = cpu_seconds(lambda: (vector[core], vector[explorer]))
    total = np.zeros_like(vector)

    def scatter() -> None:
        total[core] += parts[0]
        total[explorer] += parts[1]

    def merge() -> None:
        total[core], total[explorer] = parts

    seconds["scatter"], _ = cpu_seconds(scatter)
    seconds["merge"], _ = cpu_seconds(merge)
    seconds["add"], _ = cpu_seconds(lambda: np.add(total, vector, out=total))
    seconds["quantise"], sent = cpu_seconds(lambda: quantise(vector, buckets, rng=rng))
    seconds["dequantise"], _ = cpu_seconds(lambda: dequantise(sent, buckets))
    return seconds


def codec(seconds: dict[str, float], size: int) -> dict[str, dict[str, str]]:
    """The steps as a scenario's ``codec`` has them: for a million entries, of worker and server."""
    shared = {
        "select": seconds["select"] + seconds["sign"],
        "extract": seconds["draw"] + seconds["extract"],
        "add": seconds["add"],
        "dequantise": seconds["dequantise"],
    }
    follows = seconds["quantise"] + seconds["dequantise"]  # the server takes the step that it sends
    worker = {**shared, "merge": seconds["merge"], "quantise": seconds["quantise"]}
    server = {**shared, "merge": seconds["scatter"], "quantise": follows}
    return {
        side: {step: f"{1e12 * taken / size:.0f}us" for step, taken in times.items()}
        for side, times in (("worker", worker), ("ps", server))
    }


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millions", nargs="*", type=float, default=[0.8, 13.4, 138.357544])
    parser.add_argument("--json", type=Path, help="write the codec of every size there")
    arguments = parser.parse_args()
    found = {}
    for millions in arguments.millions:
        size = round(millions * 1e6)
        alpha, epsilon = (0.2, 0.1) if millions > 100 else (0.3, 0.15)
        seconds = measured(size, alpha, epsilon)
        found[size] = codec(seconds, size)
        sys.stdout.write(f"{size:,} entries, alpha {alpha}, epsilon {epsilon}\n")
        for step, taken in seconds.items():
            each = taken / millions * 1e3
            sys.stdout.write(f"  {step:10} {taken * 1e3:10.2f} ms {each:8.3f} ms a million\n")
        for side, times in found[size].items():
            stated = ", ".join(f"{step}: {time_}" for step, time_ in times.items())
            sys.stdout.write(f"  {side}: {{{stated}}}\n")
        sys.stdout.flush()
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
