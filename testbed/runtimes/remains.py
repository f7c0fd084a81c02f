"""What is left of a run that should have ended, in words: which processes, and what to type."""

from __future__ import annotations

from testbed.errors import NodeError
from testbed.runtimes.agents import all_of
from testbed.runtimes.process import Process, describe
from testbed.telemetry.folder import RunFolder


def not_ended(folder: RunFolder, *, after_seconds: float) -> NodeError:
    """A run that was to be ended is still there: names the processes, and how to end them."""
    agents, holder = all_of(folder.path), _holder(folder)
    left = [describe(one.pid) for one in agents]
    if holder is not None:
        left.append(f"{describe(holder.pid)}, which started it and holds its lock")
    if not left:
        return NodeError(
            f"{folder.lock} was still held after {after_seconds:g} s, by a process that is neither "
            "who started the run nor its agent, or is another user's.",
            hint=f"`fuser -v {folder.lock}`, as root, names it: end that one, then "
            f"`testbed down {folder.name}`.",
        )
    pids = " ".join(str(one.pid) for one in (*agents, *([holder] if holder else [])))
    return NodeError(
        f"{folder.name} has not ended after {after_seconds:g} s. Left: process "
        f"{'; process '.join(left)}.",
        hint=f"`kill -9 {pids}`, then `testbed down {folder.name}`.",
    )


def _holder(folder: RunFolder) -> Process | None:
    """The process that took the lock, while it lives and the lock is held."""
    if not folder.alive():
        return None
    try:
        taken = Process.parse(folder.lock.read_text())
    except OSError:  # gone in the meantime, or another user's
        return None
    return taken if taken is not None and taken.alive() else None
