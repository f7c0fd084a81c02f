"""A role's launch arguments, and its connection to the parameter server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from testbed.errors import NodeError
from testbed.models.compute import open_device
from testbed.rpc.client import PATIENCE_SECONDS, Connection
from testbed.rpc.limits import MessageLimits
from testbed.scenario.experiment import Experiment
from testbed.telemetry.folder import ONE_BY_ONE

LABEL_BYTES = 8
"""Size of a shared sample's label, and of its index."""


class Arguments(BaseModel):
    """A role's arguments.

    Attributes:
        node: the node's name in the run, such as ``w3``.
        index: number of a worker, 0 for other roles.
        process: number of its process: 0, then one more after every restart.
        folder: holds ``scenario.yaml``, ``data``, ``ps``, ``sockets`` and, if used, ``custom``.
        server: the parameter server's ``address:port`` for workers.
        token: the role's token for the parameter server; for that one itself, the run's secret.
        patience_seconds: real time to wait for a peer that stopped responding.
        source: ``address:port`` of the source of stream records; its own for a producer that
            serves devices. Empty without streams.
        source_token: a worker's token for the source.
        topics: with a broker, the prefix of its topics' names.
        compute_token: a worker's token for the processes that compute its gradients; empty if it
            computes them itself.
        device: the torch device that the role computes on; empty for its CPU.
        gpu_memory: the fraction of a GPU's memory for the role's tensors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    index: int = 0
    process: int = 0
    folder: Path
    server: str = ""
    token: Annotated[str, Field(min_length=1)]
    patience_seconds: Annotated[float, Field(alias="patience")] = PATIENCE_SECONDS
    source: str = ""
    source_token: str = ""
    topics: str = ""
    compute_token: str = ""
    device: str = ""
    gpu_memory: float = 1.0

    @classmethod
    def parse(cls, arguments: Mapping[str, str]) -> Arguments:
        """Parse the launcher's arguments.

        Raises:
            NodeError: an argument is missing, unknown or invalid.
        """
        try:
            return cls.model_validate(dict(arguments))
        except ValidationError as error:
            wrong = error.errors()[0]
            found = f"{wrong['loc'][0]}: {wrong['msg']}"
            raise NodeError(f"a role was launched with an invalid argument {found}") from None

    def experiment(self, opened: Experiment | None) -> Experiment:
        """Return the run's experiment: opened before this process was forked, or read now."""
        return opened.moved(self.folder) if opened else Experiment.open(self.folder)

    def open_device(self, number: int = 0) -> str | None:
        """Open the device that the role computes on, for ``Network.bind``; None for its CPU.

        ``number`` is that of the process, of those that compute on a GPU each.

        Raises:
            HostError: it is a GPU that PyTorch cannot use in this node.
        """
        if not self.device:
            return None
        hint = "`testbed doctor FILE` checks this host. In Docker, `image build --gpu` is needed."
        whose, memory = "its device", self.gpu_memory
        return open_device(self.device, whose=whose, hint=hint, memory=memory, number=number)

    @property
    def ps_folder(self) -> Path:
        """The parameter server's own folder."""
        return self.folder / "ps"

    @property
    def slow(self) -> Path:
        """File with the factor by which a fault slows down this worker's steps."""
        return self.folder / "slow" / self.node

    @property
    def stood(self) -> Path:
        """File with the real seconds for which faults have frozen this worker's node in all."""
        return self.folder / "slow" / f"{self.node}.stood"

    @property
    def compute_socket(self) -> Path:
        """The unix socket at which gradients are requested."""
        return self.folder / "compute" / "compute.sock"

    @property
    def one_by_one(self) -> Path:
        """File with why gradients are computed one by one, if several at once are asked for."""
        return self.folder / "compute" / ONE_BY_ONE

    @property
    def socket(self) -> Path:
        """The unix socket for snapshots and reports."""
        return self.folder / "sockets" / "ps.sock"


def connect(address: str, arguments: Arguments, *, experiment: Experiment) -> Connection:
    """Open a role's connection to the parameter server."""
    return Connection(
        address,
        token=arguments.token,
        limits=limits(experiment),
        patience_seconds=arguments.patience_seconds,
    )


def limits(experiment: Experiment) -> MessageLimits:
    """Return the limits of a connection, given the scenario's model and links."""
    size = experiment.network.layout.size
    return MessageLimits.of(
        size,
        transfer_seconds=experiment.ping_seconds / experiment.scenario.time_scale,
        extra_bytes=_shared_bytes(experiment) + experiment.algorithm.most_noted(size),
    )


def _shared_bytes(experiment: Experiment) -> int:
    """Return the maximum size of the samples that a worker shares in one message."""
    most = experiment.algorithm.most_shared(experiment.scenario.workers.batch_size)
    return most * (experiment.sample_bytes + 2 * LABEL_BYTES)
