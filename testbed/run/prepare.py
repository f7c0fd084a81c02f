"""Creates a run's folder and everything in it that must exist before the first process starts."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Generic, Self, TypeVar

import testbed
from testbed.errors import HostError, Problem, ScenarioError
from testbed.host.kafka import KafkaFiles, find_kafka
from testbed.host.users import Users
from testbed.network.netem import check_netem, kernel_has_netem, owned_links
from testbed.plan.hosts import hosts_text
from testbed.plan.make import plan
from testbed.plan.nodes.broker import BrokerRole
from testbed.plan.nodes.broker_files import broker_files
from testbed.plan.nodes.compute import shares_compute
from testbed.plan.written import plan_text
from testbed.run.setup import TrainingSetup
from testbed.runtimes.base import RuntimeDriver
from testbed.scenario.devices import any_differs, devices_text
from testbed.scenario.dump import dump_data
from testbed.scenario.links import changed_links
from testbed.scenario.own_code import names_of, with_copies
from testbed.scenario.scalars import dotted
from testbed.scenario.schema import Scenario
from testbed.scenario.streams import Kafka
from testbed.scenario.workload import Workload
from testbed.telemetry.files import open_to_nodes
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import Circumstances, write_environment
from testbed.telemetry.registry import Registry
from testbed.telemetry.wall import WALL
from testbed.values.topology import NodeSpec, Plan

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


Kind = TypeVar("Kind", bound=Scenario | Workload)


@dataclass(frozen=True)
class Request(Generic[Kind]):
    """The user's request."""

    scenario: Kind
    beside: Path  # folder of the scenario file
    runs: Path  # folder of all runs
    name: str | None  # the run's name, or None for one made from the scenario's
    argv: tuple[str, ...]  # the command line, for the record
    environment: Mapping[str, str]
    home: Path
    now: float  # seconds since 1970

    @classmethod
    def of(cls, scenario: Kind, *, beside: Path, runs: Path, name: str | None) -> Self:
        """Return a request of this process's user now."""
        home, now = Path.home(), WALL.read()
        return cls(scenario, beside, runs, name, tuple(sys.argv), os.environ, home, now)

    def circumstances(
        self, uid_mode: str, left_out: Sequence[str], images: Mapping[str, str]
    ) -> Circumstances:
        """Return what is recorded of the run besides its scenario."""
        return Circumstances(
            argv=self.argv,
            time_scale=self.scenario.time_scale,
            launch=self.scenario.launch,
            runtime=self.scenario.runtime.name,
            uid_mode=uid_mode,
            offload=self.scenario.network.offload,
            left_out=left_out,
            images=images,
        )


RunRequest = Request[Scenario]
WorkloadRequest = Request[Workload]


def check_run_name(name: str | None) -> None:
    """Refuse a name that is not valid for a folder, a control group and a container.

    Raises:
        ScenarioError: the name has other characters, or is too long.
    """
    if name is not None and not _NAME.fullmatch(name):
        expected = "1 to 60 letters, digits, dots, hyphens and underscores, like lr0.01_s1"
        raise ScenarioError([Problem("--name", 0, "", repr(name), expected)])


def prepare(
    request: RunRequest, planned: Plan, data: Path, *, driver: RuntimeDriver, users: Users
) -> TrainingSetup:
    """Create the folder of a run, with a plan under the run's own name; start nothing.

    Raises:
        ScenarioError: the name is taken, or the user's own files do not fit together, or a folder
            of a program is missing.
        HostError: the kernel cannot do what a link needs, or the user is not allowed to enforce a
            limit, or there is no Kafka for a broker, or the folder cannot be created.
    """
    scenario = request.scenario
    _check_folders(scenario)
    images = driver.check(planned.here)
    lacking = _left_out(scenario, planned, tried_here=not scenario.runtime.capabilities.engine)
    kafka = kafka_of_host(scenario, request.environment)
    circumstances = request.circumstances(users.mode, lacking, images)
    folder, made = _make_folder(request, planned, circumstances)
    return TrainingSetup(made, folder, users, scenario, data, token_hex(16), kafka)


def _check_folders(scenario: Scenario) -> None:
    for name, program in scenario.programs.items():
        for index, folder in enumerate(program.folders):
            if not Path(folder).is_dir():
                path = f"programs.{name}.folders.{index}"
                raise ScenarioError.at(path, repr(folder), "a folder on this host")


def kafka_of_host(scenario: Scenario, environment: Mapping[str, str]) -> KafkaFiles | None:
    """Return what the broker of the streams is started from; None if in an image, or no broker.

    Raises:
        HostError: this host has no Kafka, or no Java; says how to install it.
    """
    streams = scenario.streams
    if streams is None or not streams.has_broker or scenario.runtime.capabilities.engine:
        return None
    return find_kafka(environment)


def prepare_simulation(request: RunRequest) -> RunFolder:
    """Create the folder of a simulated run, which uses no feature of the host.

    Raises:
        ScenarioError: the name is taken, or the user's own files do not fit together.
        HostError: the folder cannot be created.
    """
    planned = plan(request.scenario, request.scenario.name)
    return _make_folder(request, planned, request.circumstances("the user's own", (), {}))[0]


def _left_out(scenario: Scenario, made: Plan, *, tried_here: bool) -> tuple[str, ...]:
    """Return the features that the links will lack; asks the kernel only if a link needs netem.

    If netem cannot be ``tried_here`` no links can be created here either; but an agent started by
    an engine can try it, and rejects what the kernel lacks.
    """
    later = [replace(made.node(node), link=link) for node, _, link in changed_links(scenario)]
    return left_out((*made.nodes, *later), made, tried_here=tried_here)


def left_out(nodes: Sequence[NodeSpec], made: Plan, *, tried_here: bool) -> tuple[str, ...]:
    """Return the features that the links of these nodes will lack; see ``_left_out``.

    Raises:
        HostError: the kernel cannot do what a link needs.
    """
    links = owned_links(nodes, made.network.trunks)
    if not any(link.up.needs_netem or link.down.needs_netem for _, link in links):
        return ()
    try:
        present = kernel_has_netem()
    except HostError:
        if tried_here:
            raise
        present = True
    return check_netem(links, missing=made.network.missing, present=present)


def _make_folder(
    request: RunRequest, planned: Plan, circumstances: Circumstances
) -> tuple[RunFolder, Plan]:
    """Create the folder, register it, and fill it with the user's files and the environment."""
    scenario = request.scenario
    own = custom_files(scenario, request.beside)

    def fill(folder: RunFolder, made: Plan) -> None:
        _write_broker_files(folder, scenario, made)
        if shares_compute(made):
            folder.compute_sockets.mkdir()
            open_to_nodes(folder.compute_sockets)
        if any_differs(scenario):
            folder.devices.write_text(devices_text(scenario), encoding="utf-8")

    text = dump_data(with_copies(scenario), "scenario")
    return make_folder(request, planned, text, own, circumstances, fill)


def make_folder(
    request: Request[Kind],
    planned: Plan,
    text: str,
    own: Sequence[Path],
    circumstances: Circumstances,
    fill: Callable[[RunFolder, Plan], None],
) -> tuple[RunFolder, Plan]:
    """Create and register the folder of a run of any kind.

    Args:
        request: the user's.
        planned: the plan, under any name.
        text: the resolved scenario, as YAML.
        own: the user's own files, which are copied.
        circumstances: of the run.
        fill: adds what only this kind of run has.
    """
    registry = Registry.of_user(request.environment, request.home)
    registry.check()
    folder, made = _new_folder(request, planned, text)
    try:
        registry.add(folder.path)
        if own:
            folder.custom.mkdir()
            for file in own:
                open_to_nodes(Path(shutil.copyfile(file, folder.custom / file.name)))
            open_to_nodes(folder.custom)
        write_environment(folder, circumstances, package=Path(testbed.__file__).parent)
        fill(folder, made)
        if not request.scenario.simulated:
            _show_to_nodes(folder.hosts, hosts_text(made))
    except BaseException:  # nothing was started: leave no folder without a run
        registry.remove(folder.path)
        shutil.rmtree(folder.path, ignore_errors=True)
        raise
    return folder, made


def _write_broker_files(folder: RunFolder, scenario: Scenario, made: Plan) -> None:
    """Write the files that a broker is started with, if the run has one."""
    transport = scenario.streams.transport if scenario.streams is not None else None
    for node in made.nodes:
        if node.role == BrokerRole.name and node.link and isinstance(transport, Kafka):
            folder.broker.mkdir(mode=0o700)  # its files are writable for all: see START
            files = broker_files(
                transport, node.link.address, run=made.run, time_scale=scenario.time_scale
            )
            for name, text in files.items():
                _show_to_nodes(folder.broker / name, text)


def _show_to_nodes(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    open_to_nodes(file)


def _new_folder(request: Request[Kind], planned: Plan, text: str) -> tuple[RunFolder, Plan]:
    """Create the folder; under another name if a run that starts now as well took the name."""
    scenario = request.scenario
    while True:
        name = request.name or run_name(scenario.name, now=request.now, taken=request.runs)
        made = planned.named(name)
        try:
            folder = RunFolder.create(
                request.runs,
                name,
                scenario=scenario.name,
                text=text,
                classes=[node.device_class for node in made.devices],
                now=request.now,
                plan=plan_text(made),
            )
        except ScenarioError:
            if request.name:
                raise
        else:
            return folder, made


def custom_files(scenario: Scenario, beside: Path) -> tuple[Path, ...]:
    """Return the user's own files that a scenario names, to be copied into the run folder.

    Raises:
        ScenarioError: two of them have the same name.
    """
    copied: dict[str, Path] = {}
    for path, name in names_of(scenario).items():
        file = beside / name
        if copied.setdefault(file.name, file).resolve() != file.resolve():
            expected = (
                f"a name other than that of {copied[file.name]}: both files are copied into one "
                "folder"
            )
            raise ScenarioError.at(dotted(path), str(file), expected)
    return tuple(sorted(copied.values()))


def run_name(scenario: str, *, now: float, taken: Path) -> str:
    """Return a name for a run: the scenario's, the time, and a number if that is taken."""
    moment = datetime.fromtimestamp(now, UTC).strftime("%m%d-%H%M%S")
    names = (f"{scenario}-{moment}{'' if n == 1 else f'-{n}'}" for n in count(1))
    return next(name for name in names if not os.path.lexists(taken / name))
