"""CPU time of what Slim-DP and Quant-DP do to a vector: python tests/bench/coding.py [MILLIONS ...]

On arrays alone: no network, no frame. Each step separately, in milliseconds per million entries,
with the share of it that is the kernel's (it clears memory that is newly allocated), and as the
``codec:`` of a scenario. ``scenarios/slim_dp/savings.py`` reads what ``--json`` writes.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage
from statistics import median
from typing import Any

import numpy as np

from testbed.payloads.core_explorer import draw_explorer, select_core, sizes
from testbed.payloads.keyed import signature_of
from testbed.payloads.qsgd import Buckets, decoded, dequantise, quantise

ENOUGH_SECONDS = 2.0
BUCKET = 512


@dataclass(frozen=True)
class Taken:
    """CPU time of a step: the median of at least three calls.

    Attributes:
        seconds: per call.
        in_kernel_ratio: the kernel's share over all calls.
    """

    seconds: float
    in_kernel_ratio: float


def cpu_time(call: Callable[[], Any]) -> tuple[Taken, Any]:
    """The time of a call, and the result of the last one."""
    taken: list[float] = []
    before = getrusage(RUSAGE_THREAD).ru_stime
    while len(taken) < 3 or sum(taken) < ENOUGH_SECONDS:
        start = time.thread_time()
        made = call()
        taken.append(time.thread_time() - start)
    in_kernel = getrusage(RUSAGE_THREAD).ru_stime - before
    return Taken(median(taken), in_kernel / sum(taken)), made


def measured(size: int, alpha: float, epsilon: float) -> dict[str, Taken]:
    """The cost of each step for a vector of this many normally distributed entries."""
    rng = np.random.default_rng(0)
    vector = rng.standard_normal(size, np.float32)
    core_size, explorer_size = sizes(size, alpha, epsilon)
    buckets = Buckets.of([size], BUCKET)
    found: dict[str, Taken] = {}
    found["select"], core = cpu_time(lambda: select_core(vector, core_size))
    found["sign"], _ = cpu_time(lambda: signature_of(core))
    found["draw"], explorer = cpu_time(lambda: draw_explorer(core, size, explorer_size, rng=rng))
    found["extract"], parts = cpu_time(lambda: (vector[core], vector[explorer]))
    total = np.zeros_like(vector)

    def scatter() -> None:
        total[core] += parts[0]
        total[explorer] += parts[1]

    def merge() -> None:
        total[core], total[explorer] = parts

    def decode() -> None:
        for _ in decoded(sent, buckets):
            pass

    found["scatter"], _ = cpu_time(scatter)
    found["merge"], _ = cpu_time(merge)
    found["add"], _ = cpu_time(lambda: np.add(total, vector, out=total))
    found["quantise"], sent = cpu_time(lambda: quantise(vector, buckets, rng=rng))
    found["dequantise"], _ = cpu_time(decode)
    found["follow"], _ = cpu_time(lambda: dequantise(sent, buckets, out=total))
    return found


def codec(found: Mapping[str, Taken], size: int) -> dict[str, dict[str, str]]:
    """The steps as in a scenario's ``codec``: per million entries, for worker and server."""
    seconds = {step: taken.seconds for step, taken in found.items()}
    shared = {
        "select": seconds["select"] + seconds["sign"],
        "extract": seconds["draw"] + seconds["extract"],
        "add": seconds["add"],
        "dequantise": seconds["dequantise"],
    }
    follows = seconds["quantise"] + seconds["follow"]  # the server applies the step that it sends
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
    codecs = {}
    for millions in arguments.millions:
        size = round(millions * 1e6)
        alpha, epsilon = (0.2, 0.1) if millions > 100 else (0.3, 0.15)
        found = measured(size, alpha, epsilon)
        codecs[size] = codec(found, size)
        sys.stdout.write(f"{size:,} entries, alpha {alpha}, epsilon {epsilon}\n")
        for step, taken in found.items():
            each = taken.seconds / millions * 1e3
            sys.stdout.write(
                f"  {step:10} {taken.seconds * 1e3:10.2f} ms {each:8.3f} ms a million, "
                f"{taken.in_kernel_ratio:4.0%} of it in the kernel\n"
            )
        for side, times in codecs[size].items():
            stated = ", ".join(f"{step}: {time_}" for step, time_ in times.items())
            sys.stdout.write(f"  {side}: {{{stated}}}\n")
        sys.stdout.flush()
    if arguments.json:
        arguments.json.write_text(json.dumps(codecs, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
