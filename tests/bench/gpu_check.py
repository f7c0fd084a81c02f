"""Does a GPU compute what a CPU computes? ``make gpu-check``, as root, natively, in a few minutes.

    python tests/bench/gpu_check.py [GPUs or share of one for each of four workers, default 0.25]

Compares the gradient of every model, alone and many at once, and the quickstart with four workers,
on the GPU and on the CPU; the quickstart also with a node that computes the gradients of all
workers on the GPU (`compute: shared`). Exits with 0 if they agree, 1 if they do not, and 3 where
there is no GPU to check.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from bench_gradient import CASES
from numpy.typing import NDArray

import testbed
from testbed.algorithms.base import Samples
from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import OwnCompute
from testbed.errors import INVALID, HostError, NodeError
from testbed.host.gpus import find_gpus
from testbed.models import ImageShape, ModelConfig
from testbed.models.base import GradientRequest
from testbed.models.batched import TOLERANCE, BatchedNetwork, NotBatchable, require_batchable
from testbed.roles.compute_process import ComputeProcess
from testbed.roles.segment import MESSAGE_BYTES, Segment, request_of, result_in, worker_bytes
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

WORKERS = 4
"""In a run."""


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
        runs = Path(folder)
        cpu = quickstart(runs, "cpu", *each("0"))
        on_gpu = quickstart(runs, "gpu", *each(share))
        shared = quickstart(runs, "shared", f"compute={{shared: {{gpus: 1, vmap: {WORKERS}}}}}")
        faults = [*compare(cpu, on_gpu)]
        print("the same with `compute: shared`:")
        faults += compare(cpu, shared)
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
    print(f"             {each[0]:.3f} ms each one by one, {each[1]:.3f} ms of {count} at once")
    shared, seconds = asked(OwnCompute(Batches(images, labels), parameters, bound, batched), at)
    print(f"             {1e3 * seconds / count:.3f} ms with `compute: shared`, {count} at once")
    for name, one in (("at once", found), ("shared", shared)):
        error = float(np.linalg.norm(one - np.stack(alone)) / np.linalg.norm(alone))
        if error > TOLERANCE:
            yield f"{config} {name}: {error:.1e}, expected at most {TOLERANCE:.0e}"


@dataclass(frozen=True)
class Batches:
    """One batch per worker; the sample that it asks for is the batch's number."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def batch(self, samples: Samples, draw: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the batch of this number."""
        return self.images[samples[0]], self.labels[samples[0]]


def asked(compute: OwnCompute, at: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """Ask a process of `compute: shared`, in a thread, for a gradient per row of parameters.

    Returns:
        The gradients, and the seconds from the first request to the last answer.
    """
    count, size = at.shape
    channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = Thread(target=ComputeProcess(compute, size, count, theirs).serve)
    process.start()
    peers, segments = [], []
    for index in range(count):
        segment, memory = Segment.create(size)
        ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with peer:
            socket.send_fds(channel, [worker_bytes(index)], [peer.fileno(), memory])
        os.close(memory)
        channel.recv(MESSAGE_BYTES)
        segment.parameters[:] = at[index]
        peers.append(ours)
        segments.append(segment)
    began = time.perf_counter()
    for index, peer in enumerate(peers):
        peer.send(request_of(Step(np.array([index]))))
    for peer in peers:
        result_in(peer.recv(MESSAGE_BYTES))
    seconds = time.perf_counter() - began
    channel.close()
    process.join()
    for peer in peers:
        peer.close()
    return np.stack([segment.gradient for segment in segments]), seconds


def each(share: str) -> Iterator[str]:
    """Yield what gives each worker this share of a GPU."""
    return (f"workers.classes.{one}.gpus={share}" for one in ("fast", "medium", "slow"))


def quickstart(runs: Path, name: str, *settings: str) -> testbed.Run:
    """Run the quickstart with four workers and these settings.

    Its accuracy and bytes count whether or not the host kept up with the links and speeds.
    """
    words = ("up", "quickstart", f"--workers={WORKERS}", "--runtime=native", f"--runs={runs}")
    changes = (f"--set={one}" for one in settings)
    command = [sys.executable, "-m", "testbed", *words, f"--name={name}", *changes]
    status = subprocess.run(command, check=False).returncode
    if status not in (0, INVALID):
        raise NodeError(f"the run `{name}` failed with status {status}.")
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
