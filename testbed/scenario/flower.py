"""Flower in a workload: the fields of ``flower``, and the programs that stand for them.

Flower's own commands run unchanged, as its documentation starts them: a SuperLink, a SuperNode per
device, and ``flwr run``. Flower is the users' own, and is never imported here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.version import Version
from pydantic import ConfigDict, Field, model_validator

from testbed.errors import InvalidValue
from testbed.host.limits import SERVICE_WEIGHT
from testbed.scenario.direction import Link
from testbed.scenario.settings import Attendance
from testbed.scenario.workload import Program, ProgramClass, Workload
from testbed.scenario.workload_names import SEED
from testbed.values.cpu_sets import CpuSet
from testbed.values.fields import (
    Count,
    Cpus,
    Folder,
    Gpus,
    Key,
    NodeName,
    PositiveSize,
    StrictModel,
    Word,
)
from testbed.values.topology import CORE, LaunchMode, WhenAbsent

FLOWER = "flower"
SUPERLINK, SUPERNODE, RUN = "superlink", "supernode", "flwr"
"""The names of the programs, and so of the nodes: supernode0, supernode1, ..."""

ROUNDS = "num-server-rounds"
"""The key for the number of rounds in the apps that Flower's templates create."""

SEED_IN_BRACES = f"{{{SEED}}}"
"""A value of the configuration that stands for the seed of the scenario."""

OLDEST, NEWEST = Version("1.26.0"), Version("1.42.0")
"""The oldest and the newest version of flwr that were tried; newer ones may work, too."""

FLWR_HOME = "/run/testbed/home/.flwr"
OF_SUPERNODES = ("switch", "link", "cpu", "cpuset", "memory", "gpus", "availability", "when_absent")
OF_ALL = ("python", "scratch", "folders")
START_SECONDS, JOIN_SECONDS = 300, 900

# As in {'accuracy': 0.5} and {'loss': np.float64(1.2e-05)}.
NUMBER = r"(?:np\.float\d+\()?([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)"


class SuperLink(StrictModel):
    """The node of the SuperLink and the ServerApp.

    Attributes:
        link: link of the node.
        cpu: CPU limit, in CPUs.
        cpuset: CPUs of the host that it may use.
        memory: memory limit; by default half of the host's memory.
    """

    link: Link = Link()
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None


class Flower(StrictModel):
    """A Flower app on a SuperLink and SuperNodes, with TLS off on the emulated network.

    Attributes:
        app: folder of the app, with its pyproject.toml; relative to the scenario.
        python: Python environment with flwr and what the app requires; relative to the scenario.
            By default that of the `python` in PATH.
        rounds: number of rounds: the value of `num-server-rounds` in the app's configuration.
        config: values that replace others of the app's configuration; `{seed}` is the seed of the
            scenario, as a number.
        metrics: numbers in the app's metric records, by their names, and which values are better.
        count: number of SuperNodes; by default the sum of the classes.
        classes: classes of SuperNodes with links and limits of their own.
        switch: the switch to which the link of each SuperNode leads.
        link: link of each SuperNode.
        cpu: CPU limit of each SuperNode, in CPUs, for its ClientApp, too.
        cpuset: CPUs of the host that the SuperNodes may use.
        memory: memory limit of each SuperNode.
        gpus: number of NVIDIA GPUs of each SuperNode, or its share of one; by default none.
        availability: when each SuperNode is present; by default always.
        when_absent: what is done to a SuperNode while it is absent: `kill`, `freeze` or
            `partition`. `kill` by default.
        superlink: link and limits of the SuperLink.
        launch: `warm` forks the processes of a SuperNode, and of the SuperLink, from one that has
            imported Flower and what the app imports; `cold` starts an interpreter for each, as
            Flower does.
        environment: additional environment variables of all nodes.
        scratch: size of /tmp, and also of /dev/shm, of each node. 16MiB by default.
        folders: folders of the host that all nodes see, read-only, such as those of data sets.
    """

    app: Word
    python: Word | None = None
    rounds: Count | None = None
    config: dict[Word, bool | int | float | Word] = Field(default={})
    metrics: dict[Key, Literal["higher", "lower"]] = Field(default={})
    count: Count | None = None
    classes: dict[Key, ProgramClass] = Field(default={})
    switch: NodeName = CORE
    link: Link = Link()
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None
    gpus: Gpus = 0
    availability: Attendance | None = None
    when_absent: WhenAbsent | None = None
    superlink: SuperLink = SuperLink()
    launch: LaunchMode = "warm"
    environment: dict[Key, Word] = Field(default={})
    scratch: PositiveSize | None = None
    folders: Annotated[tuple[Folder, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _counted(self) -> Flower:
        counted = sum(one.count for one in self.classes.values())
        if self.count is None and not counted:
            raise InvalidValue("no SuperNodes", "`count`, or `classes` with a `count` each")
        if self.classes and self.count not in (None, counted):
            found = f"classes whose counts add up to {counted:,}"
            raise InvalidValue(found, f"counts that add up to `count`, {self.count:,}")
        return self

    @property
    def supernodes(self) -> int:
        """The number of SuperNodes."""
        return self.count or sum(one.count for one in self.classes.values())

    def run_config(self) -> dict[str, bool | int | float | str]:
        """Return the values that replace those of the app."""
        return {**self.config, **({} if self.rounds is None else {ROUNDS: self.rounds})}


class FlowerAndPrograms(StrictModel):
    """The programs of a workload, by name.

    Attributes:
        flower: a Flower app, in place of its programs.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[NodeName, Program]
    flower: Flower | None = None


class WorkloadFile(Workload):
    """A workload as in a file, in which `flower` stands for several programs."""

    workload: FlowerAndPrograms  # type: ignore[assignment]


@dataclass(frozen=True)
class Imports:
    """The import statements of an app's modules, of modules that are not the app's own.

    Attributes:
        client: those of its ClientApp.
        server: those of its ServerApp.
    """

    client: Sequence[str] = ()
    server: Sequence[str] = ()


@dataclass(frozen=True)
class Api:
    """Where and how the SuperLinks of some versions listen.

    Attributes:
        since: the first of these versions.
        control: port that `flwr run` uses.
        fleet: port that the SuperNodes use.
        options: what `flower-superlink` is told in addition.
    """

    since: Version
    control: int
    fleet: int
    options: tuple[str, ...] = ()


_OWN_PACKAGES = "--disable-runtime-dependency-installation"  # there is no registry to install from
_EVERYWHERE = ("--host", "0.0.0.0")
APIS = (
    Api(OLDEST, control=9093, fleet=9092),
    Api(Version("1.32.0"), control=9093, fleet=9092, options=(_OWN_PACKAGES,)),
    Api(Version("1.37.0"), control=8000, fleet=9092, options=(_OWN_PACKAGES, *_EVERYWHERE)),
    Api(Version("1.40.0"), control=8000, fleet=8000, options=(_OWN_PACKAGES, *_EVERYWHERE)),
)
"""By Flower's own command lines: gRPC at two ports at first, HTTP at one in the end."""


def api_of(version: Version) -> Api:
    """Return how the SuperLink of a supported version listens."""
    return [api for api in APIS if api.since <= version][-1]


def programs(
    flower: Flower, *, app: Path, version: Version, imports: Imports = Imports()
) -> dict[str, dict[str, Any]]:
    """Return the programs as a user would write them, without the fields of ``flower`` itself.

    Args:
        flower: the valid fields.
        app: absolute path of the app.
        version: of flwr in the environment of the nodes.
        imports: the import statements of its modules, of other packages.
    """
    api = api_of(version)
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    environment = {
        **{"FLWR_HOME": FLWR_HOME, **quiet, "PYTHONUNBUFFERED": "1"},
        **flower.environment,
    }
    config = [f"{key}={_toml(value)}" for key, value in flower.run_config().items()]
    data = files(__package__) / "data"
    with as_file(data / "flower_run.py") as script, as_file(data / "flower_warm.py") as warm:
        run = ["python", script.name, app.name, "{superlink:control}", *config]
        own = [str(script), str(app)]
        superlink, supernode, shared = ["flower-superlink"], ["flower-supernode"], []
        if flower.launch == "warm":
            shared = [str(warm)]
            superlink = [*_forked(warm.name, imports.server), *superlink]
            supernode = [*_forked(warm.name, imports.client), *supernode]
    joined = {"prints": "SuperNode ID: ", "within": f"{JOIN_SECONDS}s"}
    listens = {"listens": "fleet", "within": f"{START_SECONDS}s"}
    link_to = ["--superlink", "{superlink:fleet}"]
    partition = ["--node-config", "partition-id={index} num-partitions={count}"]
    return {
        SUPERLINK: {
            "command": [*superlink, "--insecure", *api.options],
            "environment": environment,
            "files": shared,
            "ports": {"fleet": api.fleet, "control": api.control},
            "end": "fatal",
            "cpu_weight": SERVICE_WEIGHT,
        },
        SUPERNODE: {
            "command": [*supernode, "--insecure", *link_to, *partition],
            "environment": environment,
            "files": shared,
            "count": flower.supernodes,
            "after": {SUPERLINK: listens},
            "end": "noticed",
        },
        RUN: {
            "command": run,
            "environment": environment,
            "files": own,
            "after": {SUPERNODE: joined},
            "metrics": _metrics(flower.metrics),
        },
    }


def _forked(script: str, imports: Sequence[str]) -> list[str]:
    """Return how a command begins whose processes are forks that have imported Flower and app."""
    statements = [word for one in imports for word in ("--import", one)]
    return ["python", script, *statements, "--"]


def _metrics(better: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the metrics of ``flwr run``, which prints what the ServerApp logs."""
    named = {
        name: {"regex": f"'{name}': {NUMBER}", "better": direction}
        for name, direction in better.items()
    }
    failures = r"[Rr]eceived [0-9]+ results and ([0-9]+) failures"
    return {
        "round": {"regex": r"\[ROUND ([0-9]+)"},
        "failures": {"regex": failures, "better": "lower"},
        **named,
    }


def _toml(value: bool | int | float | str) -> str:
    """Return a value as ``flwr run --run-config`` reads it."""
    return SEED_IN_BRACES if value == SEED_IN_BRACES else json.dumps(value, ensure_ascii=False)
