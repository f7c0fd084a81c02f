"""CPU time of what Slim-DP and Quant-DP do to a vector: python tests/bench/coding.py [MILLIONS ...]

Of the worker and of the parameter server, each step apart, in seconds and in seconds for a million
entries of the model. Arrays alone: no network, no frame. ``scenarios/slim_dp/savings.py`` reads it.
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


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millions", nargs="*", type=float, default=[0.8, 13.4, 138.357544])
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    found = {}
    for millions in arguments.millions:
        size = round(millions * 1e6)
        alpha, epsilon = (0.2, 0.1) if millions > 100 else (0.3, 0.15)
        found[size] = measured(size, alpha, epsilon)
        sys.stdout.write(f"{size:,} entries, alpha {alpha}, epsilon {epsilon}\n")
        for step, seconds in found[size].items():
            sys.stdout.write(
                f"  {step:10} {seconds * 1e3:10.2f} ms {seconds / millions * 1e3:8.3f}"
            )
            sys.stdout.write(" ms a million\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
