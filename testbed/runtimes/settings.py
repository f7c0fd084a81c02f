"""What the native runtime tells the agent on its command line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from testbed.runtimes.base import Template


@dataclass(frozen=True)
class AgentSettings:
    """What an agent has to know of its run before the first launch.

    Attributes:
        folder: the run folder; its name is the run's.
        detached: whether the run outlives its controller.
        template: what the process that warm nodes are forked from does first.
    """

    folder: Path
    detached: bool
    template: Template

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote."""
        content = json.loads(text)
        template = content["template"]
        return cls(
            folder=Path(content["folder"]),
            detached=content["detached"],
            template=Template(
                preload=tuple(template["preload"]),
                warm_up=template["warm_up"],
                arguments=template["arguments"],
            ),
        )

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({**asdict(self), "folder": str(self.folder)})
