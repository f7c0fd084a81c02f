"""The fields of a scenario whose nodes run the user's own programs, without an algorithm of ours.

``workload`` stands in place of ``algorithm``, ``model`` and ``dataset``. Its programs have what the
``programs`` beside a training have; in addition they may have several nodes, wait for one another,
and have files, an environment and a home of their own.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from testbed.errors import InvalidValue
from testbed.faults import ChangedLink, Freeze, Kill, NetworkPartition, SlowNode
from testbed.host.limits import SERVICE_WEIGHT
from testbed.runtimes import Native, Runtime
from testbed.scenario.direction import Link
from testbed.scenario.schema import CommandSettings, NetworkSettings
from testbed.scenario.settings import Attendance
from testbed.scenario.workload_metrics import Metric, Port
from testbed.values.cpu_sets import CpuSet
from testbed.values.family import Named
from testbed.values.fields import (
    NODE_SCHEMA,
    Count,
    Cpus,
    FiniteNumber,
    Gpus,
    Image,
    Key,
    Name,
    NodeName,
    Pattern,
    PositiveDuration,
    PositiveSize,
    Seed,
    StrictModel,
    Word,
    version_one,
)
from testbed.values.topology import CORE, LaunchMode, WhenAbsent
from testbed.values.units import Duration

WAIT = Duration(60.0)

WorkloadFault = Annotated[Freeze | Kill | NetworkPartition | ChangedLink | SlowNode, Named()]
"""The faults that concern a node, whatever runs in it."""


class _ShortForm(BeforeValidator):
    """Annotates a condition: ``ended`` is short for ``{state: ended}``."""

    def __init__(self) -> None:
        super().__init__(lambda value: {"state": value} if isinstance(value, str) else value)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema of both forms."""
        return {"anyOf": [{"enum": list(get_args(NodeEvent))}, handler(schema)]}


NodeEvent = Literal["started", "ended"]


class Condition(StrictModel):
    """What a program waits for. Exactly one of `state`, `listens` and `prints` must be set.

    Attributes:
        state: `started`, or `ended`, with status 0; also written without braces.
        listens: a TCP port at which the other program listens: a number, or the name of one of its
            `ports`.
        prints: a regular expression that a line of its output matches.
        within: how long to wait from the start of the other program; then the run fails. By default
            60s for `listens` and `prints`, and without limit for `state`.
    """

    state: NodeEvent | None = None
    listens: Port | Key | None = None
    prints: Pattern | None = None
    within: PositiveDuration | None = None

    @model_validator(mode="after")
    def _one(self) -> Condition:
        given = [name for name, value in self if name != "within" and value is not None]
        if len(given) != 1:
            found = " and ".join(given) or "no condition"
            raise InvalidValue(found, "one of started, ended, {listens: 8080} and {prints: ready}")
        if self.within is None and self.state is None:
            return self.model_copy(update={"within": WAIT})
        return self


After = Annotated[Condition, _ShortForm()]
ProgramEnd = Literal["final", "fatal", "noticed", "expected"]


def _two(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != 2 or len(names) != 2:
        raise InvalidValue(", ".join(names) or "no switch", "two different switches")
    return names


class SwitchLink(Link):
    """A link between two switches, which all nodes behind it share.

    Attributes:
        between: the two switches.
        profile: a shipped link, whose rates and delays apply where `up` and `down` set none.
        mtu: bytes of the largest IP packet; by default the largest of any node's link.
        up: from the first switch to the second.
        down: from the second switch to the first.
    """

    between: Annotated[
        tuple[NodeName, ...],
        Field(strict=False),
        AfterValidator(_two),
        WithJsonSchema({"type": "array", "items": NODE_SCHEMA, "minItems": 2, "maxItems": 2}),
    ]

    @property
    def ends(self) -> tuple[str, str]:
        """The two switches."""
        return self.between[0], self.between[1]


class ProgramClass(StrictModel):
    """Some of a program's nodes.

    Attributes:
        count: number of nodes in this class.
        switch: the switch to which each node's link leads; by default that of the program.
        link: link of each node; by default that of the program.
        cpu: CPU limit of each node, in CPUs; by default that of the program.
        cpuset: CPUs of the host that the nodes may use; by default those of the program.
        memory: memory limit of each node; by default that of the program.
        gpus: number of NVIDIA GPUs that each node has, or its share of one; by default that of the
            program.
        availability: when each node is present; by default as the program says.
    """

    count: Count
    switch: NodeName | None = None
    link: Link | None = None
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None
    gpus: Gpus | None = None
    availability: Attendance | None = None


class Program(CommandSettings):
    """A command that runs in one or more nodes, isolated like all nodes.

    In the command and the environment, `{index}` is replaced by the number of the node among those
    of the program, from 0, `{count}` by their number, `{seed}` by the scenario's seed, `{NODE}` by
    the address of a node, `{NODE:x}` by the address and the port x of its program, `{port:x}` by
    the number of the program's own port x, and `{hosts:x}` by the names of all nodes of the program
    x, separated by commas.

    Attributes:
        command: the program and its arguments, without a shell.
        end: what it means if a node exits before the end of the run: `final`, the run ends well
            once all final nodes have exited with status 0, and fails if one has another status;
            `fatal`, the run fails; `noticed`, the exit is reported and the run continues;
            `expected`, like `noticed`, but an exit with status 0 is not reported.
        count: number of nodes. A single node has the name of the program; several are named
            NAME0, NAME1, ...
        switch: the switch to which the link of each node leads.
        classes: classes of nodes with links and limits of their own, in the order in which nodes
            are assigned to them; their counts add up to `count`.
        cpu_weight: share of the CPU time of each node while the host's CPUs are busy, relative to
            the other nodes, from 1 to 10: higher for a server that all wait for.
        environment: variables, in addition to those of `testbed up` (in Docker: of the image).
        gpus: number of NVIDIA GPUs that each node has, or its share of one, such as 0.25, of which
            the program must not use more memory; by default none.
        image: an image of the Docker engine from which the containers of the nodes are made; by
            default testbed's, with Python and torch. `command` replaces its entrypoint.
        python: a Python environment (a folder that `python -m venv` or `uv venv` created), whose
            programs come first; relative to the scenario.
        files: files and folders that the program sees in its working folder, read-only, by their
            names; relative to the scenario. The working folder is also the home, and writable.
        ports: TCP ports at which it listens, by name.
        after: what must have happened before it starts, by the name of another program: `started`,
            `ended` (with status 0), {listens: PORT} or {prints: REGEX}; for all its nodes.
        metrics: numbers that it prints or serves, by name.
        availability: when each node is present: a recording, or periods that are drawn; by default
            always.
        when_absent: what is done to a node that runs while it is absent: `kill` ends the program,
            which is started again when the node returns; `freeze` stops its processes, which
            continue then; `partition` stops its link, and the program runs on. `kill` by default.
    """

    end: ProgramEnd = "final"
    count: Count = 1
    switch: NodeName = CORE
    classes: dict[Key, ProgramClass] = Field(default={})
    cpu_weight: Annotated[int, Field(ge=1, le=SERVICE_WEIGHT)] = 1
    environment: dict[Key, Word] = Field(default={})
    gpus: Gpus = 0
    image: Image | None = None
    python: Word | None = None
    files: Annotated[tuple[Word, ...], Field(strict=False)] = ()
    ports: dict[Key, Port] = Field(default={})
    after: dict[NodeName, After] = Field(default={})
    metrics: dict[Key, Metric] = Field(default={})
    availability: Attendance | None = None
    when_absent: WhenAbsent | None = None

    @model_validator(mode="after")
    def _has_absences(self) -> Program:
        classes = self.classes.values()
        if self.when_absent and not (self.availability or any(c.availability for c in classes)):
            found = f"when_absent: {self.when_absent}, without `availability`"
            raise InvalidValue(found, "an `availability` of the program, or of one of its classes")
        return self

    @model_validator(mode="after")
    def _classes_add_up(self) -> Program:
        counted = sum(member.count for member in self.classes.values())
        if self.classes and counted != self.count:
            raise InvalidValue(
                f"classes whose counts add up to {counted:,}",
                f"counts that add up to `count`, {self.count:,}",
            )
        return self

    def node_names(self, name: str) -> tuple[str, ...]:
        """Return the names of its nodes, if the program has this name."""
        return (name,) if self.count == 1 else tuple(f"{name}{n}" for n in range(self.count))

    def node_classes(self, name: str) -> tuple[tuple[str, ProgramClass], ...]:
        """Return the device class of each node, with its name; without classes, the program's."""
        classes = self.classes or {name: ProgramClass(count=self.count)}
        return tuple((key, one) for key, one in classes.items() for _ in range(one.count))

    def gpus_of(self, one: ProgramClass) -> float:
        """Return the number of GPUs of each node of a class, or its share of one."""
        return self.gpus if one.gpus is None else one.gpus

    def absence(self, one: ProgramClass) -> WhenAbsent | None:
        """Return what is done to absent nodes of a class; None if they are always present."""
        return (self.when_absent or "kill") if one.availability or self.availability else None


class WorkloadStop(StrictModel):
    """When a workload ends, at the latest: then its programs are ended, and the run has finished.

    Attributes:
        time: time since the first node started.
        metrics: values of metrics, by name, that any node reaches: exceeds, or falls below if lower
            values are better.
    """

    time: PositiveDuration | None = None
    metrics: dict[Key, FiniteNumber] = Field(default={})

    @model_validator(mode="after")
    def _something(self) -> WorkloadStop:
        if self.time is None and not self.metrics:
            raise InvalidValue("no criterion", "at least one of time and metrics")
        return self


class Workload(StrictModel):
    """One run of programs that are not of testbed, on devices and links as in a training.

    Attributes:
        version: version of the scenario format.
        name: prefix of the names of the scenario's runs.
        seed: seed of all random draws.
        runtime: the runtime that creates the containers.
        workload: the programs, by name.
        links: links between switches, by name. The switch `core` always exists, others exist if a
            link leads to them.
        network: use of kernel features by the links.
        faults: planned faults: what happens during the run, when, and to which nodes.
        stop: when the run ends at the latest; by default when its final programs have ended.
    """

    time_scale: ClassVar[float] = 1.0  # the programs take the time that they take
    launch: ClassVar[LaunchMode] = "cold"
    simulated: ClassVar[bool] = False

    version: Annotated[Literal[1], BeforeValidator(version_one)] = 1
    name: Name
    seed: Seed = 0
    runtime: Runtime = Native(name="native")
    workload: dict[NodeName, Program] = Field(min_length=1)
    links: dict[NodeName, SwitchLink] = Field(default={})
    network: NetworkSettings = NetworkSettings()
    faults: Annotated[tuple[WorkloadFault, ...], Field(strict=False)] = ()
    stop: WorkloadStop | None = None

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics of all programs by name; those of one name agree on `better`."""
        programs = self.workload.values()
        return {name: one for program in programs for name, one in program.metrics.items()}

    def node_names(self) -> tuple[str, ...]:
        """Return the names of all nodes, in the order of their numbers on the switch."""
        named = (one.node_names(name) for name, one in self.workload.items())
        return tuple(name for names in named for name in names)
