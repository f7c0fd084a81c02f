"""The agent's outer process: it creates the run's pid namespace, and waits for its first process.

For an unprivileged user it first creates the user namespace that owns all others of the run. Root's
agent that enters containers of an engine stays in the pid namespace in which they are.

The controller starts it with the lifeline as standard input, the pipe for its reports as
standard output, and its log as standard error.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from testbed.errors import HostError
from testbed.host import syscalls
from testbed.host.process import end_with
from testbed.host.refusals import explain
from testbed.host.reports import encode_error, report
from testbed.host.user_namespace import enter_user_namespace
from testbed.runtimes.agent.settings import AgentSettings, title_of


def main() -> int:
    """Fork the agent itself; return its exit status once it has ended."""
    settings = AgentSettings.from_json(sys.argv[1])
    syscalls.set_name(title_of(settings.folder))
    try:
        enter_user_namespace(settings.users.kind)
        if settings.own_pids:
            syscalls.unshare(syscalls.CLONE_NEWPID)
    except (OSError, HostError) as error:
        refusal = explain(error, root=not settings.users.namespace)
        report(sys.stdout.fileno(), error=encode_error(refusal))
        return refusal.exit_code
    child = os.fork()
    if child == 0:
        # Imported only here: the process that waits outside for the whole run stays small.
        from testbed.runtimes.agent.role import resolve

        end_with(lambda: resolve(settings.main)(settings))
    with suppress(BrokenPipeError):  # the controller has ended; the child sees that in its lifeline
        report(sys.stdout.fileno(), pid=child)
    for descriptor in (sys.stdin.fileno(), sys.stdout.fileno()):
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    end_with(main)
