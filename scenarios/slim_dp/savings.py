"""What Slim-DP and Quant-DP save of Plump-DP's communication, by bytes and with coding.

    python scenarios/slim_dp/savings.py [--coding coding.json] [--picture savings.png]

Arithmetic at the true sizes of the paper's models, without training. In a round K workers push and
pull through the parameter server's link, one after the other, and code beside one another; the
server decodes K pushes and codes one reply. What a step takes is in ``coding.json``, as
``tests/bench/coding.py --json`` writes it; without it, coding costs nothing.

    T = 2 K B / r + C        B bytes of a message, r bytes a second, C seconds of coding

So of two methods the one with more coding and fewer bytes wins below r = 2 K (B' - B) / (C - C').
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from testbed.compress.core_explorer import sizes
from testbed.reports.figures import write_picture

BUCKET = 512
GIGABITS = (1, 10, 56)
METHODS = ("plump-dp", "quant-dp", "slim-dp")


@dataclass(frozen=True)
class Case:
    """A model of the paper, its parameters, and what Slim-DP sends of it."""

    name: str
    size: int
    alpha: float
    epsilon: float


CASES = (
    Case("GoogLeNet", 13_400_000, 0.3, 0.15),
    Case("VGG-16", 138_357_544, 0.2, 0.1),
)


@dataclass(frozen=True)
class Cost:
    """Of one round: bytes of a message, and seconds of coding."""

    message_bytes: float
    coding_seconds: float

    def seconds(self, workers: int, gigabits: float) -> float:
        """T, at so many Gbit/s."""
        return 2 * workers * self.message_bytes * 8 / (gigabits * 1e9) + self.coding_seconds


def costs(case: Case, workers: int, rounds: int, coding: Mapping[str, float]) -> dict[str, Cost]:
    """Of each method, with a new core every so many ``rounds``; ``coding``: seconds of a step."""
    core, explorer = sizes(case.size, case.alpha, case.epsilon)
    cost = {step: coding.get(step, 0.0) for step in STEPS}
    chosen = (cost["select"] + cost["sign"]) / rounds + cost["draw"] + cost["extract"]
    # At the worker before and after, at the server for each worker and for the reply.
    slim = chosen + cost["merge"] + workers * cost["scatter"] + chosen
    quant = cost["quantise"] + cost["dequantise"]
    quant += workers * (cost["dequantise"] + cost["add"]) + cost["quantise"] + cost["dequantise"]
    return {
        "plump-dp": Cost(4 * case.size, workers * cost["add"]),
        "quant-dp": Cost(case.size + 4 * ceil(case.size / BUCKET), quant),
        "slim-dp": Cost(8 + 4 * core + 8 * explorer + 4 * core / rounds, slim),
    }


STEPS = ("select", "sign", "draw", "extract", "scatter", "merge", "add", "quantise", "dequantise")


def break_even(one: Cost, other: Cost, workers: int) -> float:
    """The bandwidth, in Gbit/s, below which the one with fewer bytes is the faster.

    Infinite if it is so at any, 0 if at none.
    """
    fewer, more = sorted((one, other), key=lambda cost: cost.message_bytes)
    coding = fewer.coding_seconds - more.coding_seconds
    if coding <= 0:
        return inf
    return 2 * workers * (more.message_bytes - fewer.message_bytes) * 8 / coding / 1e9


def report(case: Case, workers: int, rounds: int, coding: Mapping[str, float]) -> Iterator[str]:
    """Lines about one model and so many workers."""
    cost = costs(case, workers, rounds, coding)
    plump = cost["plump-dp"]
    yield f"{case.name}, {case.size:,} parameters, K={workers}, q={rounds}"
    for method in METHODS[1:]:
        its = cost[method]
        bare = 1 - its.message_bytes / plump.message_bytes
        saved = [1 - its.seconds(workers, r) / plump.seconds(workers, r) for r in GIGABITS]
        shares = ", ".join(
            f"{share:6.1%} at {r} Gbit/s" for share, r in zip(saved, GIGABITS, strict=True)
        )
        below = break_even(its, plump, workers)
        yield (
            f"  {method}: {its.message_bytes / 1e6:9.2f} MB a message, {its.coding_seconds:.3f} s "
            f"of coding a round; saves {bare:.2%} by bytes; with coding {shares}; "
            f"faster than plump-dp below {below:.3g} Gbit/s"
        )
    slim, quant = cost["slim-dp"], cost["quant-dp"]
    yield (
        f"  quant-dp is faster than slim-dp below {break_even(quant, slim, workers):.3g} Gbit/s, "
        "slim-dp above"
    )


def draw(coding: Mapping[int, Mapping[str, float]], rounds: int) -> Figure:
    """Saved share of the communication time against the bandwidth."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    rates = [10 ** (power / 20) for power in range(-40, 41)]
    for place, case in enumerate(CASES):
        axes = figure.add_subplot(1, 2, place + 1)
        for workers, style in ((4, "-"), (8, "--")):
            cost = costs(case, workers, rounds, coding.get(case.size, {}))
            for method in METHODS[1:]:
                saved = [
                    1 - cost[method].seconds(workers, r) / cost["plump-dp"].seconds(workers, r)
                    for r in rates
                ]
                color = "C0" if method == "quant-dp" else "C1"
                axes.plot(rates, saved, style, color=color, label=f"{method}, K={workers}")
        axes.set(xscale="log", ylim=(-1, 1), title=case.name, xlabel="Gbit/s")
        axes.axhline(0, color="grey", linewidth=0.5)
    figure.axes[0].set_ylabel("saved communication time")
    figure.axes[0].legend()
    return figure


def main() -> int:
    """Print, and draw if asked to."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coding", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE")
    parser.add_argument("--core-rounds", type=int, default=50)
    arguments = parser.parse_args()
    coding: dict[int, dict[str, float]] = {}
    if arguments.coding:
        read = json.loads(arguments.coding.read_text(encoding="utf-8"))
        coding = {int(size): steps for size, steps in read.items()}
    for case in CASES:
        for workers in (4, 8):
            lines = report(case, workers, arguments.core_rounds, coding.get(case.size, {}))
            sys.stdout.writelines(f"{line}\n" for line in lines)
    if arguments.picture:
        write_picture(arguments.picture, draw(coding, arguments.core_rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
