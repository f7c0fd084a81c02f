"""Creates the folder of a workload's run, with copies of the files that its programs read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.faults import ChangedLink
from testbed.host.gpus import find_gpus
from testbed.host.users import Users
from testbed.plan.gpus import deal_gpus
from testbed.plan.workload import plan_workload
from testbed.run.prepare import WorkloadRequest, left_out, make_folder
from testbed.run.setup import WorkloadSetup
from testbed.runtimes.base import RuntimeDriver
from testbed.scenario.dump import dump_data
from testbed.scenario.links import changed
from testbed.scenario.own_code import COPIES
from testbed.scenario.workload import Program, Workload
from testbed.scenario.workload_checks import INTERPRETER
from testbed.scenario.workload_links import with_own_files
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Gpu, NodeSpec, Plan

SYSTEM = (Path("/usr"), Path("/bin"), Path("/opt"))
"""Folders that every node sees; an interpreter elsewhere is shown to the nodes."""


def prepare_workload(
    request: WorkloadRequest,
    *,
    driver: RuntimeDriver,
    users: Users,
    find_gpus: Callable[[], Sequence[Gpu]] = find_gpus,
) -> WorkloadSetup:
    """Create the folder of a run; start nothing.

    Args:
        request: the user's.
        driver: of its runtime.
        users: where the nodes' uids come from.
        find_gpus: finds this host's GPUs, if a node has any.

    Raises:
        ScenarioError: the name is taken, or two files of the programs have one name.
        HostError: the kernel cannot do what a link needs, or the user is not allowed to enforce a
            limit, or there are too few GPUs, or the folder cannot be created.
    """
    workload, copied = with_files(request.scenario, request.beside)
    request = replace(request, scenario=workload)
    planned = plan_workload(workload, workload.name)
    planned = deal_gpus(planned, find_gpus() if planned.wants_gpus else (), vector=0)
    images = driver.check(planned.nodes)
    engine = workload.runtime.capabilities.engine
    nodes = (*planned.nodes, *_changed_nodes(workload, planned))
    lacking = left_out(nodes, planned, tried_here=not engine)
    circumstances = request.circumstances(users.mode, lacking, images)

    def fill(folder: RunFolder, made: Plan) -> None:
        folder.homes.mkdir(mode=0o755)
        for node in made.nodes:
            home = folder.home(node.name)
            home.mkdir(mode=0o700)
            for file in node.files:
                (home / Path(file).name).symlink_to(Path("/run/testbed/files") / Path(file).name)

    text = dump_data(workload.model_dump(mode="json", by_alias=True, exclude_none=True), "scenario")
    folder, made = make_folder(request, planned, text, copied, circumstances, fill)
    return WorkloadSetup(made, folder, users, workload)


def with_files(workload: Workload, beside: Path) -> tuple[Workload, tuple[Path, ...]]:
    """Return a workload that refers to copies of its files in the run folder, and these files.

    Folders and Python environments are not copied, and become absolute.

    Raises:
        ScenarioError: two programs have files of one name.
    """
    copied: dict[str, Path] = {}

    def copy(file: str, where: str) -> str:
        path = (beside / file).absolute()
        if path.is_dir():
            return str(path)
        if copied.setdefault(path.name, path) != path:
            expected = f"a name other than that of {copied[path.name]}: both are copied"
            raise ScenarioError.at(where, str(path), expected)
        return f"{COPIES}/{path.name}"

    workload = with_own_files(workload, copy)
    programs = {}
    for name, program in workload.workload.items():
        own = f"workload.{name}.files"
        files = tuple(copy(one, f"{own}.{place}") for place, one in enumerate(program.files))
        programs[name] = _with_python(program, beside).model_copy(update={"files": files})
    return workload.model_copy(update={"workload": programs}), tuple(copied.values())


def _with_python(program: Program, beside: Path) -> Program:
    """Return a program that is shown its Python environment, and the interpreter behind that."""
    if program.python is None:
        return program
    own = (beside / program.python).absolute()
    real = (own / INTERPRETER).resolve().parents[1]
    # Scripts in bin name the interpreter by the path of the environment that a link leads to.
    shown = [own, own.resolve()]
    if not any(real.is_relative_to(one) for one in SYSTEM):
        shown.append(real)
    folders = tuple(dict.fromkeys((*program.folders, *map(str, shown))))
    return program.model_copy(update={"python": str(own), "folders": folders})


def _changed_nodes(workload: Workload, planned: Plan) -> list[NodeSpec]:
    """Return nodes with the links that faults will give them."""
    names = workload.node_names()
    found = []
    for place, fault in enumerate(workload.faults):
        if not isinstance(fault, ChangedLink):
            continue
        for number in fault.pick_targets((), seed=workload.seed, place=place, others=names):
            node = planned.node(names[number])
            assert node.link is not None, "every node of a workload has one"
            up, down = (
                changed(node.link.up, fault.up, 1.0),
                changed(node.link.down, fault.down, 1.0),
            )
            found.append(replace(node, link=replace(node.link, up=up, down=down)))
    return found
