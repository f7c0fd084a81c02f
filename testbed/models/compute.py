"""Opens the torch device on which this process computes gradients and scores."""

from __future__ import annotations

from testbed.errors import HostError

CUDA = "cuda"
"""One of the GPUs that a process sees, by default the first."""

VECTORS_AT_ONCE = 3
"""Parameters and twice the gradient: vectors per gradient of those computed at once."""


def vectors_at_once(count: int) -> int:
    """Return the number of vectors needed to compute ``count`` gradients at once; 0 for one."""
    return VECTORS_AT_ONCE * count if count > 1 else 0


def open_device(name: str, *, whose: str, hint: str, memory: float = 1.0, number: int = 0) -> str:
    """Prepare a torch device for this process; return its name.

    Args:
        name: ``cuda``, or another device of torch, which needs no preparation.
        whose: what names it, for errors.
        hint: what to do if there is no such device.
        memory: the fraction of the GPU's memory that this process's tensors may take.
        number: which of the GPUs that it sees this process computes on.

    Raises:
        HostError: PyTorch cannot use CUDA in this process.
    """
    if name != CUDA:
        return name
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.set_device(number)
    except (AssertionError, RuntimeError) as error:  # torch without CUDA raises AssertionError
        raise HostError(
            f"{whose} is {name}, but PyTorch cannot use CUDA: {error}.", hint=hint
        ) from None
    torch.backends.cudnn.allow_tf32 = False  # float32, as a CPU computes
    if memory < 1:
        torch.cuda.set_per_process_memory_fraction(memory)
    return name
