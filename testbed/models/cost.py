"""What a training step of a model computes: counted by running one, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.errors import ScenarioError
from testbed.models.base import Images, ImageShape, Network, Targets
from testbed.values.samples import inputs_of


def noise(
    image_shape: ImageShape, classes: int, *, count: int, tokens: int = 0
) -> tuple[Images, Targets]:
    """Draw images, or tokens, and targets; the same in every call.

    Args:
        image_shape: shape of a sample.
        classes: number of classes; 0 if the targets are numbers.
        count: number of samples.
        tokens: number of tokens of a target; 0 for labels and numbers.
    """
    rng = np.random.default_rng(0)
    shape = (count, *image_shape)
    if inputs_of(image_shape) == "tokens":
        images: Images = rng.integers(0, max(1, classes), shape, np.int32)
    else:
        images = rng.standard_normal(shape).astype(np.float32)
    if not classes:
        return images, rng.standard_normal(count).astype(np.float32)
    return images, rng.integers(0, classes, (count, tokens) if tokens else count)


UNCOUNTED = ("rnn", "lstm", "gru", "fft", "cdist")
"""Parts of names of torch's operations whose work its counter does not know."""


def count_flops(network: Network, image_shape: ImageShape, classes: int) -> float:
    """Return the floating-point operations per sample of a training step.

    Multiplications and additions of matrix products and convolutions are counted, as
    ``torch.utils.flop_counter`` does; other operations are few in comparison.

    Args:
        network: the model.
        image_shape: shape of a sample.
        classes: number of classes; 0 if the targets are numbers.

    Raises:
        ScenarioError: the model has operations that cannot be counted, or none that can.
    """
    count = 2 * network.least_samples
    bound = network.bind(np.zeros(network.layout.size, np.float32))
    images, targets = noise(image_shape, classes, count=count, tokens=network.tokens)
    counter = _counter()
    with counter:
        bound.loss_and_gradient(images, targets)
    unknown = sorted(name for name in counter.names if any(part in name for part in UNCOUNTED))
    expected = "a model of matrix products and convolutions, or a `speed` without a profile"
    if unknown:
        raise ScenarioError.at("model", f"{unknown[0]}, which cannot be counted", expected)
    if not counter.flops:
        raise ScenarioError.at("model", "a model without operations that can be counted", expected)
    return float(counter.flops) / count


def _counter() -> Any:
    """Return a mode that counts the work of torch's operations, and collects their names.

    It is torch's FlopCounterMode without the import of torch's compiler, which takes seconds.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.flops = 0
            self.names: set[str] = set()

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # true: torch imports its compiler

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
            self.names.add(str(func.overloadpacket))
            result = func(*args, **kwargs)
            if flops := flop_registry.get(func.overloadpacket):
                self.flops += flops(*args, **kwargs, out_val=result)
            return result

    return Counter()
