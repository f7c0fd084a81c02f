"""Addresses of unix sockets in the format of gRPC."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from testbed.host.sockets import short_path

_LONGEST_UNIX_PATH = 107  # bytes, of sockaddr_un


@contextmanager
def unix_address(path: Path) -> Iterator[str]:
    """Yield the address of a unix socket, usable inside the context.

    A path too long for the kernel is replaced by one through a descriptor of its folder. So is a
    path that gRPC would parse: it splits at ``,``, cuts at ``?`` and ``#``, decodes ``%20``.
    """
    if len(os.fsencode(path)) <= _LONGEST_UNIX_PATH and quote(str(path)) == str(path):
        yield f"unix:{path}"
        return
    with short_path(path) as name:
        yield f"unix:{name}"
