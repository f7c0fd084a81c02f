"""What needs no run of the ScaDLES paper's tables and figures, beside what the paper prints.

    python scenarios/scadles/arithmetic.py [fig3 fig4b table2 table3 table4 table5 fig9]

ResNet152 and VGG19 are shapes here: their parameters and activations are counted, and nothing is
trained. S. Tyagi, M. Swany, IEEE Big Data 2022.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, floor

from shapes import Shape, resnet152, vgg19

from testbed.payloads.topk import quotas

GIB = 2**30
SAMPLE_BYTES = 3 * 32 * 32
LINK = 5e9 / 8
"""Bytes a second of the paper's network."""

NETS: Mapping[str, Callable[[], Shape]] = {"ResNet152": resnet152, "VGG19": vgg19}
STEP_SECONDS = {"ResNet152": 1.2, "VGG19": 1.6}
Row = Sequence[object]


def fig3() -> Iterator[Row]:
    """Memory of a step, GiB: parameters, gradient, states, activations; the paper draws it only."""
    yield "network", "optimizer", "b = 16", "64", "256", "1024"
    for name, make in NETS.items():
        for optimizer in ("sgd", "nesterov", "adam"):
            sizes = [make().training_bytes(b, optimizer) / GIB for b in (16, 64, 256, 1024)]
            yield name, optimizer, *(f"{size:.2f}" for size in sizes)


def fig4b() -> Iterator[Row]:
    """Seconds of a synchronisation at 5 Gbit/s: a ring of n, and an allgather of Top-k.

    The paper says 80 to 90 % of an iteration on 8 GPUs, and that one of VGG19 takes 1.6 s: a ring
    alone takes as long. Of its Transformer it does not say how large it is.
    """
    allgathers = "allgather, n = 16, CR 0.1", "0.01"
    yield "network", "gradient", "ring, n = 8", "of an iteration", "n = 16", *allgathers
    for name, make in NETS.items():
        shape = make()
        ring = {n: 2 * (n - 1) / n * shape.dense_bytes / LINK for n in (8, 16)}
        sparse = [15 * 8 * _sent(shape, ratio) / LINK for ratio in (0.1, 0.01)]
        yield (
            name,
            f"{shape.dense_bytes / 1e6:.1f} MB",
            f"{ring[8]:.3f} s",
            f"{ring[8] / STEP_SECONDS[name]:.0%}",
            f"{ring[16]:.3f} s",
            *(f"{seconds:.3f} s" for seconds in sparse),
        )


def table2() -> Iterator[Row]:
    """What comes in T steps, t S T samples of 3,072 bytes, GiB; MISPRINT: 206.0 for 200.6."""
    yield "network", "S", "T", "GiB", "the paper's GB"
    printed = iter((0.35, 3.5, 34.33, 2.06, 20.6, 200.6, 0.47, 4.69, 46.8, 2.75, 27.5, 274.83))
    for name, seconds in STEP_SECONDS.items():
        for rate in (100, 600):
            for steps in (1_000, 10_000, 100_000):
                come = seconds * rate * steps * SAMPLE_BYTES / GIB
                yield name, rate, f"{steps:,}", f"{come:.2f}", next(printed)


def table3() -> Iterator[Row]:
    """Parameters, and the devices of the paper."""
    yield "network", "parameters", "tensors", "the paper's", "iid", "not iid"
    for name, make in NETS.items():
        layout = make().layout
        printed, devices = {
            "ResNet152": ("60.2 M", "10 devices, 1 label"),
            "VGG19": ("143.7 M", "25 devices, 4 labels"),
        }[name]
        yield name, f"{layout.size:,}", len(layout.names), printed, "16 devices", devices


BUFFERS = {  # persistence and truncation, of ResNet152 and of VGG19
    "S1": (38, 24, (2.9e5, 129), (1.0e5, 118)),
    "S2": (300, 112, (4.36e6, 633), (4.0e6, 523)),
    "S1'": (64, 24, (6.2e5, 143), (3.7e5, 129)),
    "S2'": (256, 28, (3.6e6, 384), (2.5e6, 360)),
}


def table4() -> Iterator[Row]:
    """Rounds after which (t - 1) S T wait, of all devices or one, and what truncation holds.

    A round of ScaDLES takes S of the t S samples that come in it. The mean of the law is S of all
    sixteen devices; the fastest of one has two deviations more. Truncation holds S at any time, so
    that the printed buffer is the rate of the device that it is of.
    """
    yield "set", "network", "persistence", "rounds, of all", "of one", "truncation"
    for name, (mean, deviation, *buffers) in BUFFERS.items():
        for (network, seconds), (kept, cut) in zip(STEP_SECONDS.items(), buffers, strict=True):
            rounds = [kept / (seconds - 1) / rate for rate in (16 * mean, mean + 2 * deviation)]
            told = (f"{count:,.0f}" for count in rounds)
            yield name, network, f"{kept:,.0f}", *told, cut


PRINTED = {  # CNC and floats by CR, for delta 0.1 to 0.4
    ("ResNet152", 0.1): ((0.29, 4.43e11), (0.99, 0.56e11), (1.0, 0.4e11), (1.0, 0.4e11)),
    ("ResNet152", 0.01): ((0.0, 6.02e11), (0.17, 4.99e11), (0.43, 2.56e11), (0.99, 6.32e8)),
    ("VGG19", 0.1): ((0.0, 1.3e12), (0.08, 1.19e12), (1.0, 1.3e10), (1.0, 1.3e10)),
    ("VGG19", 0.01): ((0.0, 1.3e12), (0.0, 1.3e12), (0.0, 1.3e12), (0.004, 1.29e12)),
}
STEPS = {"ResNet152": 10_000, "VGG19": 9_050}
"""As many as the paper's dense totals have."""


def table5() -> Iterator[Row]:
    """Values that a device sends, steps N (1 - CNC + CNC CR), by the CNC that is printed.

    Rows that had fewer steps send less; MISPRINTS: what is below the least, all compressed.
    """
    yield "network", "CR", "delta", "CNC", "floats", "the paper's", "all compressed"
    for (name, ratio), row in PRINTED.items():
        shape = NETS[name]()
        for delta, (cnc, printed) in zip((0.1, 0.2, 0.3, 0.4), row, strict=True):
            dense, sparse = shape.layout.size, _sent(shape, ratio)
            floats = STEPS[name] * (dense * (1 - cnc) + sparse * cnc)
            least = STEPS[name] * sparse
            yield name, ratio, delta, cnc, f"{floats:.3g}", f"{printed:.3g}", f"{least:.3g}"


def fig9() -> Iterator[Row]:
    """kB that ten devices share in a round, each sample once, for a mean rate; and to nine others.

    The paper has 150 to 2,000 kB on average.
    """
    yield "set", "alpha, beta", "shared", "delivered"
    for name, rate in {"S1": 38, "S2": 300, "S1'": 64, "S2'": 256}.items():
        for share in (0.05, 0.1, 0.25, 0.5):
            once = ceil(share * 10) * floor(share * rate) * SAMPLE_BYTES / 1000
            yield name, f"{share}, {share}", f"{once:,.0f} kB", f"{9 * once:,.0f} kB"


def _sent(shape: Shape, ratio: float) -> int:
    """Values of Top-k of the whole gradient."""
    return quotas([shape.layout.size], ratio)[0].count


TABLES = {one.__name__: one for one in (fig3, fig4b, table2, table3, table4, table5, fig9)}


def main(names: Sequence[str]) -> int:
    """Print the tables, as Markdown."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        print(f"found {', '.join(unknown)}, expected some of {', '.join(TABLES)}", file=sys.stderr)
        return 2
    for name in names or TABLES:
        head, *rows = TABLES[name]()
        print(f"## {name}\n\n{(TABLES[name].__doc__ or '').strip().splitlines()[0]}\n")
        print(f"| {' | '.join(map(str, head))} |\n|{' --- |' * len(head)}")
        for row in rows:
            print(f"| {' | '.join(map(str, row))} |")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
