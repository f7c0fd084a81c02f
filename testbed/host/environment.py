"""The environment of the agent, and so of every node: explicit, with nothing from the caller."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed.host.allocation import NODE_MAP_BYTES, NODE_TRIM_BYTES

BASE: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    # One thread per node, and none in the template: a process with threads cannot be forked.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # If torch sees a GPU, it starts a thread for it at the first backward pass.
    "CUDA_VISIBLE_DEVICES": "",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # Otherwise gRPC threads take part in every call of a worker, which costs CPU time and memory.
    "GRPC_EXPERIMENTS": "-event_engine_client",
    "MALLOC_TRIM_THRESHOLD_": str(NODE_TRIM_BYTES),
    "MALLOC_MMAP_THRESHOLD_": str(NODE_MAP_BYTES),
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONHASHSEED": "0",
}


def agent_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return BASE, what a fresh interpreter needs to find this package, and ``extra`` last."""
    package_root = str(Path(__file__).parents[2])
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    paths = {} if package_root in installed else {"PYTHONPATH": package_root}
    # HOME is not the user's, and packages installed with `pip --user` are found through it.
    if site.ENABLE_USER_SITE and os.path.isdir(site.getusersitepackages()):  # noqa: PTH112
        paths["PYTHONUSERBASE"] = site.getuserbase()
    return {**BASE, **paths, **extra}


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in a fresh interpreter like this one."""
    # -P keeps the current folder out of the module search path.
    return [sys.executable, "-P", "-m", module, *arguments]
