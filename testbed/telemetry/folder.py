"""The run folder: the files of a run, and the state of the run.

A folder is a run folder once it has a ``run.json``, written after all its other parts exist
and before anything is started, so it always records the state of the run. docs/run-folder.md
describes every file.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import disk_usage
from typing import Any

from pydantic import TypeAdapter, ValidationError

from testbed.errors import DataError, HostError, Problem, RunNotFound, ScenarioError, TestbedError
from testbed.telemetry.event_kinds import State
from testbed.telemetry.files import (
    Timestamp,
    first_mistake,
    is_gone,
    moment,
    open_to_nodes,
    read_json,
    write_atomically,
)

FORMAT = 1

ONE_BY_ONE = "one-by-one"
"""Name of the file of ``RunFolder.one_by_one``."""

ENDED: frozenset[State] = frozenset(("finished", "failed", "interrupted"))


@dataclass(frozen=True)
class RunState:
    """The content of ``run.json``; times are UTC in ISO 8601, ``classes`` the workers' by index."""

    format: int
    run: str
    scenario: str
    state: State
    created: Timestamp
    started: Timestamp | None = None
    ended: Timestamp | None = None
    reason: str = ""
    exit_code: int | None = None
    classes: tuple[str, ...] = field(kw_only=True)
    metrics: str = ""


_STATE = TypeAdapter(RunState)


@dataclass(frozen=True)
class Inside:
    """The path of a file or folder inside a run's folder, relative to it."""

    path: str

    def __get__(self, folder: RunFolder, owner: type[RunFolder]) -> Path:
        return folder.path / self.path


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run's files, and its state."""

    path: Path

    run_file = Inside("run.json")  # the state
    scenario = Inside("scenario.yaml")  # resolved
    hosts = Inside("hosts")  # names and addresses of the nodes, their /etc/hosts
    plan = Inside("plan.json")  # the nodes, links, hosts and the runtime
    environment = Inside("environment.json")  # host, versions, command line
    events = Inside("events.jsonl")  # events, one JSON object per line
    updates = Inside("updates")  # Parquet parts with a row for every applied update
    evaluations = Inside("evaluations.csv")
    traffic = Inside("traffic.csv")  # one row per reading of the kernel's counters
    summary = Inside("summary.json")  # the run in numbers, and its verdict
    figure = Inside("accuracy-ingress.png")
    logs = Inside("logs")  # output of every node
    links = Inside("links.csv")  # targets and rates of links that follow recordings
    devices = Inside("devices.csv")  # speed and link of each device, if they differ within a class
    nodes = Inside("nodes.csv")  # one row per reading of a workload's node
    other_hosts = Inside("hosts.csv")  # one row per reading of another host of the run
    pairs = Inside("pairs.csv")  # one row per pair of a workload's nodes that has exchanged data
    metrics = Inside("metrics.csv")  # one row per number that a workload's program printed
    custom = Inside("custom")  # the user's own files, if any
    ps = Inside("ps")  # the parameter server's own folder
    spool = Inside("ps/updates.bin")  # the applied updates as the parameter server writes them
    model = Inside("model")  # the best and the final model, saved by the evaluator
    checkpoint = Inside("ps/checkpoint.safetensors")  # the newest, while it may be needed
    ps_events = Inside("ps/events.jsonl")
    sockets = Inside("sockets")  # closed to all users but the run's
    ps_sockets = Inside("sockets/ps")
    ps_socket = Inside("sockets/ps/ps.sock")  # for the evaluator and the controller
    compute_sockets = Inside("sockets/compute")  # of the node that computes for all workers, if any
    one_by_one = Inside(f"sockets/compute/{ONE_BY_ONE}")  # why that node does not use `vmap`
    broker = Inside("broker")  # for streams through a broker: its start files and records
    broker_records = Inside("broker/records")
    homes = Inside("homes")  # the home of every node of a workload
    slow = Inside("slow")  # current slowdown factors of steps, by worker
    control = Inside("control")  # the agent's pid, its socket, and the lock
    agent_socket = Inside("control/agent.sock")
    lock = Inside("control/lock")  # locked while any control process of the run is alive

    @classmethod
    def create(
        cls,
        runs: Path,
        name: str,
        *,
        scenario: str,
        text: str,
        classes: Sequence[str],
        now: float,
        plan: str = "",
    ) -> RunFolder:
        """Create the folder of a new run, and that of all runs if it is missing.

        Args:
            text: the resolved scenario, as YAML.
            classes: device class of every worker, by index.
            now: seconds since 1970.
            plan: as JSON; empty for a folder without one.

        Raises:
            ScenarioError: a run of that name exists already.
            HostError: the folder cannot be created.
        """
        folder = cls((runs / name).absolute())
        try:
            folder.path.mkdir(parents=True)
        except FileExistsError:
            raise ScenarioError([folder._name_in_use()]) from None
        except OSError as error:
            message = f"{folder.path}: the run folder cannot be created: {error.strerror}."
            raise HostError(message, hint="Choose another folder with --runs.") from None
        for part in folder.parts:
            part.mkdir()
        folder.sockets.chmod(0o700)
        folder.ps_sockets.mkdir()
        write_atomically(folder.scenario, text)
        for part in (folder.ps_sockets, folder.slow, folder.scenario):
            open_to_nodes(part)
        if plan:
            write_atomically(folder.plan, plan)
        folder._write(
            RunState(FORMAT, name, scenario, "created", moment(now), classes=tuple(classes))
        )
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of an existing run.

        Raises:
            RunNotFound: ``path`` is not a run folder.
            DataError: it is damaged.
            TestbedError: it was written by a newer testbed.
        """
        folder = cls(path.absolute())
        folder.state()
        return folder

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def parts(self) -> tuple[Path, ...]:
        """The folders inside it that exist from the start."""
        return (self.updates, self.logs, self.ps, self.model, self.control, self.sockets, self.slow)

    def is_yours(self) -> bool:
        """Whether this user may change the run: its owner may, and root."""
        try:
            return os.geteuid() in (0, self.path.stat().st_uid)
        except FileNotFoundError:  # its owner does not matter any more
            return True

    def check_owner(self) -> None:
        """Refuse to change another user's run.

        Raises:
            HostError: the run belongs to another user.
        """
        if not self.is_yours():
            raise self._not_yours()

    def log(self, node: str) -> Path:
        """Return the path of a node's log."""
        return self.logs / f"{node}.log"

    def home(self, node: str) -> Path:
        """Return the path of a workload's node's home."""
        return self.homes / node

    def state(self) -> RunState:
        """Read the state of the run.

        Raises:
            RunNotFound: there is no ``run.json``.
            DataError: it is damaged.
            TestbedError: it was written by a newer testbed.
            HostError: it belongs to another user and is not readable for others.
        """
        try:
            content = read_json(self.run_file)
        except PermissionError:
            raise self._not_yours() from None
        if content is None:
            raise RunNotFound(
                f"{self.path} is not a run folder: it has no run.json.",
                hint="`testbed ps --all` lists the runs.",
            )
        found = content.get("format")
        if isinstance(found, int) and found > FORMAT:
            raise TestbedError(
                f"{self.run_file}: format {found}, this testbed reads up to {FORMAT}.",
                hint="Read the run with the version of testbed that created it, or a newer one.",
            )
        try:
            return _STATE.validate_python(content)
        except ValidationError as error:
            raise DataError(
                f"{self.run_file}: not the record of a run: {first_mistake(error)}.",
                hint="The file was edited, or has another origin.",
            ) from None

    def move(
        self, state: State, *, now: float, reason: str = "", exit_code: int | None = None
    ) -> None:
        """Record that the run has entered another state.

        The end is never recorded before the start: another process may report it, with a clock that
        was set in between.
        """
        before, changes = self.state(), dict[str, Any](state=state)
        if state in ("training", "running"):
            changes["started"] = moment(now)
        if state in ENDED:
            ended = max(moment(now), before.started or before.created)
            changes |= {"ended": ended, "reason": reason, "exit_code": exit_code}
        self._write(replace(before, **changes))

    def show_metrics(self, url: str) -> None:
        """Record the URL of the run's metrics while it is active."""
        self._write(replace(self.state(), metrics=url))

    def reopen(self) -> None:
        """Record that an interrupted run is training again."""
        again = replace(self.state(), state="training", ended=None, reason="", exit_code=None)
        self._write(again)

    def discard_records(self) -> None:
        """Delete the records of a run's broker, which have no readers after the run has ended.

        Raises:
            OSError: they cannot be deleted.
        """
        if self.broker_records.is_dir():
            shutil.rmtree(self.broker_records)

    def alive(self) -> bool:
        """Whether a control process of the run is alive, i.e. holds the lock."""
        with self.locked(shared=True) as free:
            return not free

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[bool]:
        """Try to hold the run's lock; yield whether it is held here now.

        A ``shared`` lock is for queries: several readers can hold it, and none mistakes another for
        a control process.

        Without a lock file no process can hold the lock. A lock file that we may not open belongs
        to another user and counts as held.
        """
        try:
            handle = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield True
            return
        except PermissionError:
            yield False
            return
        with _flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX) as held:
            yield held

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Prevent other readers from completing the record; yield whether none is doing so now."""
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with _flock(handle, fcntl.LOCK_EX) as held:
            yield held

    def _not_yours(self) -> HostError:
        found = self.path.stat()
        if found.st_uid == os.geteuid():
            try:
                closed, mode = self.run_file, self.run_file.stat().st_mode
            except PermissionError:
                closed, mode = self.path, found.st_mode
            return HostError(
                f"{closed} is yours, but its permissions do not let you read it (mode "
                f"{mode & 0o777:03o}).",
                hint=f"chmod -R u+rwX {self.path}",
            )
        return HostError(
            f"{self.path} is not yours: the run belongs to user {found.st_uid}.",
            hint="Ask that user, or run the command as root.",
        )

    def _name_in_use(self) -> Problem:
        hint = f"Choose another name, or remove {self.path}."
        if self.path.is_dir() and self.alive():
            hint = (
                f"That run is active: choose another name, or stop it with "
                f"`testbed down {self.path}` before you remove its folder."
            )
        return Problem("--name", 0, "", self.name, "a name that no run uses", hint)

    def _write(self, state: RunState) -> None:
        write_atomically(self.run_file, json.dumps(asdict(state), indent=2) + "\n")


@contextmanager
def _flock(handle: int, kind: int) -> Iterator[bool]:
    """Lock an open file, or yield False if it is locked already; close it at the end."""
    try:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


FULL_BYTES = 65_536
FREE_SPACE = "Free disk space, or choose another folder with --runs."
OUTPUT_CLOSED = "the reader of its output is gone"


def folder_error(folder: RunFolder, error: OSError) -> HostError:
    """Return the error of a run that cannot continue, from an error of the operating system.

    A folder that is being deleted loses its parts one by one, so any of them may be missing
    first, and its ``run.json`` may still exist.
    """
    if isinstance(error, FileNotFoundError):
        missing = Path(error.filename or "")
        inside = missing if missing.is_relative_to(folder.path) else None
        if gone := find_deleted(folder) or inside:
            return deletion_error(gone)
    place = error.filename or folder.path
    return HostError(f"the run cannot continue: {place}: {error.strerror}.", hint=FREE_SPACE)


def find_deleted(folder: RunFolder) -> Path | None:
    """Return the deleted path of an active run: its folder, or its first missing part, or None."""
    if is_gone(folder.run_file):
        return folder.path
    return next(filter(is_gone, folder.parts), None)


def deletion_error(path: Path) -> HostError:
    """Return the error of a run whose files were deleted while it was active."""
    return HostError(
        f"{path} was deleted while the run was active; the run was stopped.",
        hint="Its records are lost. Stop a run with `testbed down` before you delete its folder.",
    )


def low_disk_space(folder: RunFolder) -> str:
    """Return how little disk space is left for the folder; empty if there is enough."""
    try:
        free = disk_usage(folder.path).free
    except FileNotFoundError:  # deleted just now
        return ""
    return f"{folder.path} has {free:,} bytes" if free <= FULL_BYTES else ""
