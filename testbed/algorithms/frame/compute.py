"""Where the gradients of a worker come from, live and simulated: a batch, and a ``Compute``.

``OwnCompute`` computes in this process. With ``compute: shared``, a live worker asks another
process (``testbed.roles.shared_compute``), which computes with an ``OwnCompute`` too, as do the
processes of a simulation. These two can compute several gradients at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from numpy.typing import NDArray

from testbed.algorithms.base import Samples
from testbed.algorithms.frame.actions import Step
from testbed.models import BoundModel, Network
from testbed.models.base import GradientRequest
from testbed.payloads import Vector
from testbed.values.seeds import seed_globals

if TYPE_CHECKING:
    from testbed.models.batched import BatchedNetwork


class Source(Protocol):
    """Provides images and targets by sample index."""

    def batch(self, samples: Samples, draw: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return prepared images (b, channels, height, width) and targets (b,)."""


def batch_of(step: Step, source: Source) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the images and targets of a step; compute its gradient next.

    A step with a draw seeds the global generators. The random numbers of a model, loss or
    transform then depend only on the worker and the step, not on the process.
    """
    if step.draw:
        seed_globals(step.draw)
    return source.batch(step.samples, step.draw)


class Gradient(NamedTuple):
    """A gradient of the mean loss of a step's samples.

    Attributes:
        loss: the mean loss; NaN if unknown.
        values: float32 (N,), lent until the next gradient.
        queued_seconds: real seconds for which the worker waited for its turn.
    """

    loss: float
    values: Vector
    queued_seconds: float = 0.0


class Compute(Protocol):
    """Computes the gradients of one worker or of several."""

    def gradient(self, step: Step, at: Vector) -> Gradient:
        """Return the gradient of a step at the parameters ``at``, float32 (N,)."""


@dataclass
class OwnCompute:
    """Computes in this process.

    Attributes:
        source: the samples.
        parameters: what the network is bound to; parameters elsewhere are copied there first.
        bound: the network.
        batched: computes several gradients at once; None to compute one by one.
        one_by_one: why, if several at once were asked for.
    """

    source: Source
    parameters: Vector
    bound: BoundModel
    batched: BatchedNetwork | None = None
    one_by_one: str = ""

    @classmethod
    def open(
        cls,
        network: Network,
        source: Source,
        parameters: Vector,
        *,
        device: str | None,
        at_once: int,
        tried: Samples,
    ) -> Self:
        """Bind a network, if it permits so to compute several gradients at once.

        That is tried, and never in a process that forks others to compute: autograd cannot be used
        in the children of a process that has used it, where PyTorch sees a GPU.

        Args:
            network: the network.
            source: the samples.
            parameters: float32 (N,), to bind it to.
            device: see ``Network.bind``.
            at_once: maximum number of gradients at once.
            tried: samples of a batch to try it with.
        """
        compute = cls(source, parameters, network.bind(parameters, device=device))
        if at_once == 1:
            return compute
        from testbed.models.batched import BatchedNetwork, NotBatchable, require_batchable

        try:
            require_batchable(network, *batch_of(Step(tried, 1), source))
        except NotBatchable as error:
            compute.one_by_one = str(error)
        else:
            compute.batched = BatchedNetwork(network, at_once, device=device)
        return compute

    @property
    def together(self) -> int:
        """Maximum number of gradients at once."""
        return 1 if self.batched is None else self.batched.count

    def request(self, step: Step, at: Vector) -> GradientRequest:
        """Return the request for a step's gradient at the parameters ``at``, float32 (N,)."""
        return GradientRequest(at, *batch_of(step, self.source))

    def at_once(self, requests: Sequence[GradientRequest]) -> list[Gradient]:
        """Return 1 to ``together`` gradients, those of batches of the same shape in one pass."""
        assert self.batched is not None, "several gradients at once only if the network can"
        found: dict[int, Gradient] = {}
        shapes = [request.images.shape for request in requests]
        for shape in dict.fromkeys(shapes):
            places = [place for place, one in enumerate(shapes) if one == shape]
            computed = self.batched.gradients([requests[place] for place in places])
            for place, (loss, values) in zip(places, computed, strict=True):
                alone = len(places) == len(requests)  # another shape overwrites the values
                found[place] = Gradient(loss, values if alone else values.copy())
        return [found[place] for place in range(len(requests))]

    def gradient(self, step: Step, at: Vector) -> Gradient:
        """Compute a gradient; see Compute."""
        if at is not self.parameters:
            self.parameters[:] = at
        return Gradient(*self.bound.loss_and_gradient(*batch_of(step, self.source)))
