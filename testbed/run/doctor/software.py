"""Checks of Python, its packages, and the data."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from testbed.run.doctor.findings import Case, Finding

PACKAGES = ("torch", "numpy", "grpcio", "protobuf", "pyroute2", "pandas", "pyarrow", "matplotlib")


def check_python() -> Finding:
    """The interpreter that the nodes run as well; an older one cannot even ask."""
    return Finding("Python", "ok", f"{platform.python_version()}, {sys.executable}")


def check_packages() -> Finding:
    """What is installed, without importing it; a torch for GPUs is larger and no faster here."""
    found, lacking = {}, []
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            lacking.append(name)
    if lacking:
        mend = "Install the package with its dependencies: make install"
        return Finding("packages", "missing", f"there is no {', '.join(lacking)}", mend)
    listed = ", ".join(f"{name} {found[name]}" for name in ("torch", "numpy", "grpcio"))
    if "+cu" in found["torch"]:
        mend = "It works; the CPU build takes less disk: https://download.pytorch.org/whl/cpu"
        return Finding("packages", "warning", f"{listed}: torch's build for GPUs", mend)
    return Finding("packages", "ok", listed)


def check_data(case: Case) -> Finding:
    """Where raw data sets are looked for, and where prepared ones are kept."""
    given = case.environment.get("TESTBED_DATA", "")
    if given and not Path(given).is_dir():
        mend = "Set TESTBED_DATA to a folder with the data sets, or unset it."
        return Finding("data", "missing", f"TESTBED_DATA is {given}, which is no folder", mend)
    place = next(path for path in (case.cache, *case.cache.parents) if path.is_dir())
    if not os.access(place, os.W_OK):
        mend = "Set XDG_CACHE_HOME to a folder that can be written to."
        return Finding("data", "missing", f"the cache {place} cannot be written to", mend)
    sources = f"TESTBED_DATA is {given}" if given else "TESTBED_DATA is not set"
    return Finding("data", "ok", f"{sources}; prepared data sets are kept in {case.cache}")
