"""``python without_namespaces.py COMMAND...``: run it as root where namespaces are forbidden.

It runs in a user namespace in which every uid exists and which allows no further namespace.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from testbed.host import syscalls

EVERYBODY = "0 0 4294967295"


def main(command: list[str]) -> None:
    inside, outside = os.getpid(), os.pipe()
    mapper = os.fork()
    if mapper == 0:  # only a process outside can map more than one uid
        os.close(outside[1])
        os.read(outside[0], 1)
        for kind in ("uid", "gid"):
            Path(f"/proc/{inside}/{kind}_map").write_text(EVERYBODY)
        os._exit(0)
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    os.write(outside[1], b"\n")
    assert os.waitpid(mapper, 0)[1] == 0
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
