"""What the native runtime tells the agent on its command line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from testbed.runtimes.base import Template
from testbed.runtimes.hierarchies import Hierarchy
from testbed.runtimes.users import Users


@dataclass(frozen=True)
class AgentSettings:
    """What an agent has to know of its run before the first launch.

    Attributes:
        folder: the run folder; its name is the run's.
        detached: whether the run outlives its controller.
        template: what the process that warm nodes are forked from does first.
        users: where the nodes' uids come from.
        hierarchies: where control groups are made; empty for a run that has none.
        private: folders of the user's that no node sees, but for what its interpreter needs.
    """

    folder: Path
    detached: bool
    template: Template
    users: Users
    hierarchies: tuple[Hierarchy, ...]
    private: tuple[Path, ...] = ()

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
            users=Users(content["users"]),
            hierarchies=tuple(
                Hierarchy(Path(tree["root"]), tree["version"], frozenset(tree["controllers"]))
                for tree in content["hierarchies"]
            ),
            private=tuple(map(Path, content["private"])),
        )

    def to_json(self) -> str:
        """One line of JSON."""
        trees = [
            {
                "root": str(tree.root),
                "version": tree.version,
                "controllers": sorted(tree.controllers),
            }
            for tree in self.hierarchies
        ]
        content = {
            "folder": str(self.folder),
            "detached": self.detached,
            "template": asdict(self.template),
            "users": self.users.kind,
            "hierarchies": trees,
            "private": [str(folder) for folder in self.private],
        }
        return json.dumps(content)
