"""The compute device of a pool process: its CPU, or the GPU that all processes share."""

from __future__ import annotations

from testbed.errors import HostError
from testbed.runtimes import Simulated
from testbed.scenario.schema import Scenario


def compute_device(scenario: Scenario) -> str | None:
    """Return the torch device of this process; None for its CPU.

    Raises:
        HostError: CUDA is not available.
    """
    runtime = scenario.runtime
    if not isinstance(runtime, Simulated) or runtime.device == "cpu":
        return None
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:  # torch without CUDA raises AssertionError
        raise HostError(
            f"runtime.device is cuda, but PyTorch cannot use CUDA: {error}.",
            hint="Set it to cpu, or start from a process that has not initialised CUDA.",
        ) from None
    torch.backends.cudnn.allow_tf32 = False  # float32, as a CPU computes
    return runtime.device
