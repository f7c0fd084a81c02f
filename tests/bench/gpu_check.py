"""Does a GPU compute what a CPU computes? ``make gpu-check``, as root, natively, in a few minutes.

    python tests/bench/gpu_check.py [GPUs or share of one for each of four workers, default 0.25]

Compares the gradient of every model, alone and many at once, and the quickstart with four workers,
on the GPU and on the CPU. Exits with 0 if they agree, 1 if they do not, and 3 where there is no GPU
to check.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench_gradient import CASES

import testbed
from testbed.cli.up import INVALID
from testbed.errors import HostError, NodeError
from testbed.host.gpus import find_gpus
from testbed.models import ImageShape, ModelConfig
from testbed.models.base import GradientRequest
from testbed.models.batched import TOLERANCE, BatchedNetwork, NotBatchable, require_batchable
from testbed.telemetry.host import torch_build

GRADIENT_TOLERANCE = 1e-3
"""Of the norm of a gradient: float32 sums of up to 1e5 terms, added in another order."""

ACCURACY_TOLERANCE = 0.02
"""Of the best accuracy: three runs on one CPU had 0.9867, 0.9900 and 0.9933."""

PAYLOAD_TOLERANCE = 0.01
"""Of the mean bytes of a push, 13,792 in these three: AdaComp sends no zeros, which may differ."""

BATCH = 10

AT_ONCE = 32
"""Gradients of a pass."""


def main(share: str) -> int:
    """Print what was compared; return the exit status."""
    try:
        gpus, build = find_gpus(), torch_build()
        if not gpus:
            raise HostError("this machine has no NVIDIA GPU: nothing was checked.")
        if build is None or not build.startswith("cuda"):
            raise HostError(f"the installed PyTorch is a build for {build}: nothing was checked.")
    except HostError as lack:
        print(f"gpu-check: {lack}")
        return lack.exit_code
    for gpu in gpus:
        print(f"GPU {gpu.index}: {gpu.name}, {gpu.memory / 1e9:.1f} GB; PyTorch for {build}")
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        runs = [quickstart(Path(folder), *one) for one in (("cpu", "0"), ("gpu", share))]
        faults = [*compare(*runs)]
    # After the runs: from here on this process uses CUDA.
    for config, image_shape in CASES:
        error = gradient_error(config, image_shape, device="cuda")
        print(f"{config.model_dump()['name']:12} relative difference of the gradient {error:.1e}")
        if error > GRADIENT_TOLERANCE:
            faults.append(f"{config}: {error:.1e}, expected at most {GRADIENT_TOLERANCE:.0e}")
        faults += at_once(config, image_shape, device="cuda")
    print("\n".join(f"DIFFERENT: {fault}" for fault in faults) or "the GPU and the CPU agree")
    return bool(faults)


def gradient_error(config: ModelConfig, image_shape: ImageShape, *, device: str) -> float:
    """Return the norm of the difference of a device's gradient from the CPU's, over that norm."""
    network = config.build(image_shape, 10, folder=Path())
    rng = np.random.default_rng(0)
    at = network.initial(rng)
    images = rng.standard_normal((BATCH, *image_shape)).astype(np.float32)
    labels = rng.integers(0, 10, BATCH)
    expected = network.bind(at).loss_and_gradient(images, labels)[1].copy()
    found = network.bind(at, device=device).loss_and_gradient(images, labels)[1]
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def at_once(
    config: ModelConfig, image_shape: ImageShape, *, device: str, count: int = AT_ONCE
) -> Iterator[str]:
    """Yield the difference of gradients computed at once, if it is too large; print their times."""
    network, rng = config.build(image_shape, 10, folder=Path()), np.random.default_rng(0)
    images = rng.standard_normal((count, BATCH, *image_shape)).astype(np.float32)
    labels = rng.integers(0, 10, (count, BATCH))
    at = np.stack([network.initial(rng) for _ in range(count)])
    requests = [GradientRequest(*one) for one in zip(at, images, labels, strict=True)]
    parameters = at[0].copy()
    bound = network.bind(parameters, device=device)
    try:
        require_batchable(network, images[0], labels[0])
    except NotBatchable as why:
        print(f"             not at once: {why}")
        return
    batched = BatchedNetwork(network, count, device=device)
    batched.gradients(requests), bound.loss_and_gradient(images[0], labels[0])  # load kernels
    began = time.perf_counter()
    alone = []
    for request in requests:
        parameters[:] = request.parameters
        alone.append(bound.loss_and_gradient(request.images, request.targets)[1].copy())
    between = time.perf_counter()
    found = np.stack([gradient for _, gradient in batched.gradients(requests)])
    ended = time.perf_counter()
    each = [1e3 * seconds / count for seconds in (between - began, ended - between)]
    error = float(np.linalg.norm(found - np.stack(alone)) / np.linalg.norm(alone))
    print(f"             {each[0]:.3f} ms each one by one, {each[1]:.3f} ms of {count} at once")
    if error > TOLERANCE:
        yield f"{config} at once: {error:.1e}, expected at most {TOLERANCE:.0e}"


def quickstart(runs: Path, name: str, share: str) -> testbed.Run:
    """Run the quickstart with four workers that have this share of a GPU.

    Its accuracy and bytes count whether or not the host kept up with the links and speeds.
    """
    classes = ("fast", "medium", "slow")
    settings = [f"--set=workers.classes.{one}.gpus={share}" for one in classes]
    words = ("up", "quickstart", "--workers=4", "--runtime=native", f"--runs={runs}")
    command = [sys.executable, "-m", "testbed", *words, f"--name={name}", *settings]
    status = subprocess.run(command, check=False).returncode
    if status not in (0, INVALID):
        raise NodeError(f"the run on the {name.upper()} failed with status {status}.")
    return testbed.Run(runs / name)


def compare(cpu: testbed.Run, gpu: testbed.Run) -> Iterator[str]:
    """Yield the differences of two runs beyond the tolerances; print what is compared."""
    accuracy = [run.summary["accuracy"]["best"] for run in (cpu, gpu)]
    payload = [float(run.updates["payload_up_bytes"].mean()) for run in (cpu, gpu)]
    step = [float(run.updates["compute_seconds"].mean()) for run in (cpu, gpu)]
    print(f"best accuracy {accuracy[0]:.4f} on the CPU, {accuracy[1]:.4f} on the GPU")
    print(f"bytes of a push {payload[0]:,.1f} and {payload[1]:,.1f}")
    print(f"seconds of a step {step[0]:.4f} and {step[1]:.4f}")
    if abs(accuracy[0] - accuracy[1]) > ACCURACY_TOLERANCE:
        yield f"best accuracies {accuracy}, expected at most {ACCURACY_TOLERANCE} apart"
    if abs(payload[1] / payload[0] - 1) > PAYLOAD_TOLERANCE:
        yield f"bytes of a push {payload}, expected at most {PAYLOAD_TOLERANCE:.0%} apart"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "0.25"))
