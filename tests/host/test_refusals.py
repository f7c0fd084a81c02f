"""Hosts where ordinary users cannot create namespaces: the cause is named, with the fix."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.host.refusals import explain

EPERM = PermissionError(errno.EPERM, "Operation not permitted")


@pytest.fixture
def sysctls(tmp_path: Path) -> Callable[..., Path]:
    """A folder like /proc/sys with some settings changed from their defaults."""

    def make(**changed: str) -> Path:
        usual = {
            "kernel.unprivileged_userns_clone": "1",
            "kernel.apparmor_restrict_unprivileged_userns": "0",
            "user.max_user_namespaces": "96551",
            "user.max_net_namespaces": "96551",
        }
        for name, value in {**usual, **changed}.items():
            path = tmp_path / name.replace(".", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{value}\n")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("kernel.unprivileged_userns_clone", "0", "=1, or run it as root"),
        ("user.max_user_namespaces", "0", "=10000, or run it as root"),
        ("user.max_net_namespaces", "0", "=10000, or run it as root"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "=0, or give .* AppArmor profile"),
    ],
)
def test_the_setting_is_named(
    sysctls: Callable[..., Path], name: str, value: str, cure: str
) -> None:
    refusal = explain(EPERM, root=False, sysctls=sysctls(**{name: value}))
    assert f": {name} is {value}." in refusal.message
    assert refusal.exit_code == 3
    with pytest.raises(HostError, match=f"sysctl -w {name}{cure}"):
        raise refusal


def test_without_a_matching_setting_the_error_explains_the_refusal(
    sysctls: Callable[..., Path],
) -> None:
    usual = sysctls()
    assert (
        "a seccomp filter or security profile" in explain(EPERM, root=False, sysctls=usual).message
    )
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "this user has reached the limit" in explain(full, root=False, sysctls=usual).message
    none = OSError(errno.EINVAL, "Invalid argument")
    assert "its kernel has no user namespaces" in explain(none, root=False, sysctls=usual).message
    assert "CAP_SYS_ADMIN" in explain(EPERM, root=True, sysctls=usual).hint
