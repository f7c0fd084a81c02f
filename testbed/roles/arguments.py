"""What a role is told when it is launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import NodeError
from testbed.rpc.client import PATIENCE_SECONDS


@dataclass(frozen=True)
class Arguments:
    """A role's arguments.

    Attributes:
        node: its name in the run, such as ``w3``.
        index: number of a worker, 0 for the others.
        folder: holds ``scenario.yaml``, ``data``, ``ps`` and, if used, ``custom``.
        server: ``address:port`` at which the parameter server answers workers.
        token: of the run.
        patience_seconds: real time for which a peer that went silent is waited for.
    """

    node: str
    index: int
    folder: Path
    server: str
    token: str
    patience_seconds: float = PATIENCE_SECONDS

    @classmethod
    def parse(cls, arguments: Mapping[str, str]) -> Arguments:
        """Read them as they come from the launcher.

        Raises:
            NodeError: one is missing, unknown or not a number.
        """
        values = dict(arguments)
        try:
            parsed = cls(
                node=values.pop("node"),
                index=int(values.pop("index", "0")),
                folder=Path(values.pop("folder")),
                server=values.pop("server", ""),
                token=values.pop("token"),
                patience_seconds=float(values.pop("patience", PATIENCE_SECONDS)),
            )
        except KeyError as missing:
            raise NodeError(f"a role was launched without its argument {missing}") from None
        except ValueError as error:
            raise NodeError(
                f"a role was launched with an argument of the wrong kind: {error}"
            ) from None
        if values:
            raise NodeError(f"a role was launched with unknown arguments: {', '.join(values)}")
        if not parsed.token:
            raise NodeError("a role was launched with an empty token")
        return parsed

    @property
    def ps_folder(self) -> Path:
        """The parameter server's own folder."""
        return self.folder / "ps"

    @property
    def socket(self) -> Path:
        """The unix socket for snapshots and reports."""
        return self.ps_folder / "ps.sock"
