"""Explains why a host does not allow namespaces, and how to fix it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import HostError

SYSCTLS = Path("/proc/sys")
AS_ROOT = "or run it as root, with sudo"
KINDS = ("user", "pid", "net", "mnt", "uts", "ipc")
APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"


def explain(error: OSError | HostError, *, root: bool, sysctls: Path = SYSCTLS) -> HostError:
    """Return the kernel's error for ``root``, or another user, with the setting that causes it."""
    if isinstance(error, HostError):
        return error
    who = "root" if root else "ordinary users"
    refusal = f"this host does not let {who} create namespaces ({error.strerror})"
    if root:
        hint = "In a container, start the container with CAP_SYS_ADMIN."
        return HostError(f"{refusal}.", hint=hint)
    found = next(_settings(sysctls), None)
    if found is not None:
        name, value, fix = found
        return HostError(f"{refusal}: {name} is {value}.", hint=f"{fix}, {AS_ROOT}.")
    if error.errno == errno.EINVAL:
        hint = "Run it as root, with sudo."
        return HostError(f"{refusal}: its kernel has no user namespaces.", hint=hint)
    if error.errno == errno.ENOSPC:
        hint = f"Stop some of their users, raise user.max_user_namespaces, {AS_ROOT}."
        return HostError(f"{refusal}: this user has reached the limit.", hint=hint)
    return HostError(
        f"{refusal}: a seccomp filter or security profile forbids it, as in most containers.",
        hint=f"Start the container with a profile that allows user namespaces, {AS_ROOT}.",
    )


def _settings(sysctls: Path) -> Iterator[tuple[str, str, str]]:
    """Yield settings that forbid namespaces: name, value, and how to change it."""
    if _read(sysctls / "kernel/unprivileged_userns_clone") == "0":
        name = "kernel.unprivileged_userns_clone"
        yield name, "0", f"Allow it: sudo sysctl -w {name}=1"
    for kind in KINDS:
        if _read(sysctls / f"user/max_{kind}_namespaces") == "0":
            name = f"user.max_{kind}_namespaces"
            yield name, "0", f"Allow it: sudo sysctl -w {name}=10000"
    if _read(sysctls / APPARMOR) == "1":
        name = APPARMOR.replace("/", ".")
        profile = f"give {os.path.realpath('/proc/self/exe')} an AppArmor profile with `userns,`"
        yield name, "1", f"Allow it: sudo sysctl -w {name}=0, or {profile}"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # another kernel, without this setting
        return ""
