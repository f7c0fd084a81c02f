"""The agent's first process: it makes the run's pid namespace, and waits for what lives in there.

Started by the native runtime with the lifeline as standard input, the pipe that it reports in as
standard output, and its log as standard error.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from testbed.agent import syscalls
from testbed.agent.role import end_with
from testbed.errors import HostError
from testbed.runtimes.reports import encode_error, report
from testbed.runtimes.settings import AgentSettings


def main() -> int:
    """Fork the run's first process; returns its exit status once it has ended."""
    settings = AgentSettings.from_json(sys.argv[1])
    try:
        syscalls.unshare(syscalls.CLONE_NEWPID)
    except OSError as error:
        hint = "Containers need CAP_SYS_ADMIN; inside another container, run that one with it."
        refusal = HostError(f"this host lets root make no namespaces: {error.strerror}.", hint=hint)
        report(sys.stdout.fileno(), error=encode_error(refusal))
        return refusal.exit_code
    child = os.fork()
    if child == 0:
        # Only now: the process that waits outside for the whole run stays small.
        from testbed.agent.init import main as init

        end_with(lambda: init(settings))
    with suppress(BrokenPipeError):  # the controller has ended; the child reads so in its lifeline
        report(sys.stdout.fileno(), pid=child)
    for descriptor in (sys.stdin.fileno(), sys.stdout.fileno()):
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    end_with(main)
