"""Duration of a sweep with equal trainings, with and without `--reuse`: BSP on three links.

    python tests/bench/reuse.py [updates, default 600]

The runs execute one after the other, each on all CPUs, and differ only in the links' rate.
"""

from __future__ import annotations

import sys
import tempfile

import testbed
from testbed.reports.frames import Run

LINKS = "workers.classes.device.link.up.rate"
SCENARIO = {
    "name": "links",
    "runtime": "simulated",
    "algorithm": {"bsp": {"learning_rate": 0.05}},
    "dataset": "digits",
    "workers": {"count": 8, "batch_size": 32, "classes": {"device": {"speed": "100ms"}}},
    "evaluate": {"every": 200},
}


def main(updates: int) -> None:
    """Print a line per model and way: the seconds of each run."""
    print(f"{'model':12} {'parameters':>10} {'reuse':>6} {'first':>7} {'second':>7} {'third':>7}")
    for model in ("digits-cnn", "vgg-s"):
        for reuse in ("0B", "6GB"):
            study = {
                "name": "reuse",
                "scenario": SCENARIO | {"model": model, "stop": {"updates": updates}},
                "vary": {"rate": [f"{LINKS}={rate}mbit" for rate in (10, 5, 1)]},
            }
            with tempfile.TemporaryDirectory() as runs:
                swept = testbed.sweep(study, runs=runs, jobs=1, reuse=reuse)
                made = [Run(swept.found[run].path) for run in swept.study.runs]
                taken = [run.duration_seconds for run in made]
                size = made[0].updates["payload_up_bytes"].iloc[0] // 4
            first, second, third = (f"{one:.1f} s" for one in taken)
            print(f"{model:12} {size:10} {reuse:>6} {first:>7} {second:>7} {third:>7}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 600)
