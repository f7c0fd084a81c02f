"""Starts a run's agent so that leftovers are on record, whichever process is killed.

The agent waits at its end of a pipe, the lifeline, before it creates anything. This process records
the agent's pid and start time, and sends "commit" after that. If it dies before, the agent
reads end of file and exits; if it dies later, an attached run ends itself in the same way.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.errors import HostError
from testbed.host.cgroups import AGENT_GROUP, RunGroups
from testbed.host.environment import agent_environment, python
from testbed.host.hierarchies import Hierarchy
from testbed.host.limits import max_processes
from testbed.host.process import Process, has_ended, if_exists
from testbed.host.reports import ReportPipe
from testbed.host.users import Users
from testbed.runtimes.agent.settings import (
    AGENT_LOG,
    AGENT_MODULE,
    AGENT_SOCKET,
    COMMIT,
    PRIVATE,
    AgentSettings,
    settings_of,
    waiting_for,
)
from testbed.runtimes.base import STOP_SECONDS, Lifeline, Start
from testbed.runtimes.lock import take_lock
from testbed.telemetry.files import write_atomically
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry
from testbed.values.topology import Plan

AGENT_RECORD = "agent.pid"
AGENT_SETTINGS = "agent.json"

THAW_SECONDS = 5.0
"""Interval at which all nodes are thawed while they end.

With the agent, the run's own means to freeze a node have ended: what freezes one later is not of
the run. To thaw 1,000 nodes takes as much CPU time as 50 of them need to end.
"""


@dataclass
class NativeLifeline(Lifeline):
    """Implements Lifeline, which documents the methods."""

    groups: RunGroups
    _spawned: subprocess.Popen[bytes]
    _agent: Process | None = None

    @classmethod
    def begin(
        cls, folder: RunFolder, groups: RunGroups, *, start: Start, settings: AgentSettings
    ) -> Self:
        """Spawn the agent with these settings, record it, and wait until it answers."""
        with ExitStack() as emptied:
            try:
                lifeline = cls._spawn(folder, groups, emptied, start=start, settings=settings)
            except OSError as error:
                raise HostError(
                    f"{error.filename or folder.path}: {error.strerror}; the agent cannot be "
                    "started."
                ) from None
            with lifeline.undone_on_failure(), emptied:
                lifeline._commit(start)
        return lifeline

    @classmethod
    def _spawn(
        cls,
        folder: RunFolder,
        groups: RunGroups,
        emptied: ExitStack,
        *,
        start: Start,
        settings: AgentSettings,
    ) -> Self:
        lock = take_lock(folder)
        try:
            emptied.enter_context(groups.empty_parent_group())
            spawned = _execute(folder, start, settings, lock=lock)
        except BaseException:
            os.close(lock)
            raise
        return cls(folder, lock, groups, spawned)

    def stop(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        groups = own(self.groups, self.folder)
        self._hang_up()
        end_agent(self._agent, groups, deadline=deadline)
        # Without a record the agent never received the commit, and now reads end of file.
        try:
            self._spawned.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise HostError(f"the agent (process {self._spawned.pid}) did not exit.") from None
        clear(self.folder, groups, deadline=deadline)

    def _send(self, data: bytes) -> None:
        assert self._spawned.stdin is not None
        self._spawned.stdin.write(data)

    def _commit(self, start: Start) -> None:
        assert self._spawned.stdout is not None
        deadline = time.monotonic() + start.deadline_seconds
        log = self.folder.log(AGENT_LOG)
        reports = ReportPipe(self._spawned.stdout.fileno(), writer="the agent", log=log)
        self._put_on_record(int(reports.expect("pid", deadline=deadline)))
        with suppress(BrokenPipeError):
            self._send(COMMIT)
        with start.waiting():
            reports.expect("ready", deadline=deadline)

    def _put_on_record(self, pid: int) -> None:
        self._agent = if_exists(pid)
        if self._agent is None:
            return  # the next report contains the reason
        control = self.folder.control
        try:
            write_atomically(control / AGENT_RECORD, f"{self._agent}\n")
            (control / AGENT_SOCKET).symlink_to(
                f"/proc/{pid}/root{control.resolve() / PRIVATE / AGENT_SOCKET}"
            )
        except OSError as error:
            raise HostError(f"{self.folder.control}: {error.strerror}.") from None

    def _hang_up(self) -> None:
        for pipe in (self._spawned.stdin, self._spawned.stdout):
            if pipe is not None:
                pipe.close()


def end_agent(agent: Process | None, groups: RunGroups, *, deadline: float) -> None:
    """Kill the agent, and so every process of its pid namespace, and wait until all have ended.

    The outer process, which waits for the agent, ends after it, and could not be found any more
    by then: its pidfd is opened while the agent is alive.

    Raises:
        HostError: it has not ended by ``deadline`` (``time.monotonic``).
    """
    with ExitStack() as held:
        descriptors = list(_hold(agent, held))
        # Checked only now: while the agent's pidfd is held, its pid cannot be reused.
        if agent is None or not descriptors:
            return
        descriptors += _hold(waiting_for(agent), held)
        agent.kill()
        groups.thaw_all()
        # A node may have been frozen in the meantime; in version 1 it would keep the agent alive.
        while not all(_has_ended(one, deadline) for one in descriptors):
            groups.thaw_all()
            if time.monotonic() > deadline:
                raise HostError(
                    f"the agent of {groups.run} (process {agent.pid}) was killed but does not end.",
                    hint="See its state in /proc, then run `testbed down` again.",
                )


def _has_ended(descriptor: int, deadline: float) -> bool:
    """Wait for THAW_SECONDS, at most until the deadline."""
    left = max(0.0, deadline - time.monotonic())
    return has_ended(descriptor, min(THAW_SECONDS, left))


def _hold(process: Process | None, held: ExitStack) -> Iterator[int]:
    """Yield a pidfd of a process, if it exists, until ``held`` is closed."""
    descriptor = None if process is None else process.open()
    if descriptor is not None:
        held.callback(os.close, descriptor)
        yield descriptor


def clear(folder: RunFolder, groups: RunGroups, *, deadline: float) -> None:
    """Kill what is still in the run's control groups, remove them, and the agent's record.

    Raises:
        HostError: something still exists at ``deadline`` (``time.monotonic``).
    """
    try:
        groups.remove(deadline=time.monotonic())  # usually all processes have ended
    except HostError:
        groups.kill_all(deadline=deadline)
        groups.remove(deadline=deadline)
    groups.restore_parent_group()
    for name in (AGENT_RECORD, AGENT_SETTINGS, AGENT_SOCKET):
        (folder.control / name).unlink(missing_ok=True)
    with suppress(OSError):  # it never existed, or the run folder was deleted
        (folder.control / PRIVATE).rmdir()
    folder.discard_records()


def own(groups: RunGroups, folder: RunFolder, *, agents: Iterable[AgentSettings] = ()) -> RunGroups:
    """Return the control groups, or none if they are another run's.

    Runs of one name may have folders in different parents, but only one of them can be alive. Its
    agent exists before it has made the groups: ``agents`` are all of the runtime.
    """
    inside = [one for one in map(settings_of, groups.processes(AGENT_GROUP)) if one is not None]
    namesakes = [one for one in agents if one.folder.name == folder.name]
    foreign = any(one.folder != folder.path for one in (*inside, *namesakes))
    return RunGroups(groups.run, ()) if foreign else groups


def read_settings(folder: RunFolder) -> AgentSettings | None:
    """Return the settings of the recorded agent; None if there is no record."""
    try:
        return AgentSettings.from_json((folder.control / AGENT_SETTINGS).read_text())
    except (OSError, ValueError):
        return None


def read_record(folder: RunFolder) -> Process | None:
    """Return the recorded agent, dead or alive; None if there is no record."""
    try:
        return Process.parse((folder.control / AGENT_RECORD).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None


def settings_for(
    plan: Plan, folder: RunFolder, start: Start, hierarchies: tuple[Hierarchy, ...]
) -> AgentSettings:
    """Return the settings of a run's agent, after its users were determined."""
    assert start.users is not None
    return AgentSettings(
        folder.path,
        start.template,
        start.users,
        hierarchies,
        _private_folders(start.users, folder),
        max_processes(start.users, nodes=len(plan.nodes)),
    )


def _execute(
    folder: RunFolder, start: Start, settings: AgentSettings, *, lock: int
) -> subprocess.Popen[bytes]:
    (folder.control / AGENT_SETTINGS).write_text(settings.to_json())
    with folder.log(AGENT_LOG).open("ab") as log:
        return subprocess.Popen(
            python(AGENT_MODULE, settings.to_json()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            cwd="/",
            env=agent_environment(start.environment),
            pass_fds=(lock,),  # held by the agent's chain for as long as it lives
            start_new_session=True,  # Ctrl-C is for the controller only
        )


def _private_folders(users: Users, folder: RunFolder) -> tuple[Path, ...]:
    """Return folders that nodes with the user's uid could read but must not.

    These are the home, and all folders in which the user has runs.
    """
    if users.kind != "one":
        return ()
    root = Path("/")
    try:
        home = root / pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a uid without an account
        home = root
    registry = Registry.of_user(os.environ, home)
    runs = (run.parent for run in (folder.path, *registry.runs()))
    return tuple(sorted({home, registry.folder, *runs} - {root}))
