"""Requirements of the tests, by marker. Tests whose requirements are missing are skipped.

``pytest`` runs all tests that the machine can. ``pytest --quick`` (``make test``) skips those that
need root or take long. Skips print their reason.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from polling import LONGEST_SECONDS, wait_until

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21


@cache
def lacks_root() -> str:
    """Why namespaces, cgroups and tc cannot be used; empty if they can."""
    status = Path("/proc/self/status")
    if not status.exists():
        return "needs Linux"
    fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    effective = int(fields["CapEff"], 16)
    if os.geteuid() != 0 or not all(effective >> cap & 1 for cap in (CAP_NET_ADMIN, CAP_SYS_ADMIN)):
        return "needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN: sudo make privileged"
    return ""


@cache
def lacks_namespaces() -> str:
    """Why this user cannot make containers; empty if it can, as root or as any other user."""
    if os.geteuid() == 0:
        return lacks_root()
    from testbed.errors import HostError
    from testbed.host.users import find_users

    try:
        find_users()
    except HostError as refusal:
        return f"needs namespaces: {refusal}"
    return ""


@cache
def lacks_netem() -> str:
    """Why links cannot have delay, jitter or loss; empty if they can."""
    if reason := lacks_root():
        return reason
    from testbed.network.netem import kernel_has_netem

    return "" if kernel_has_netem() else "needs a kernel with netem (CONFIG_NET_SCH_NETEM)"


@cache
def lacks_docker() -> str:
    """Why no Docker engine can be used; empty if one can."""
    address = urlsplit(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    if address.scheme == "unix":
        return _refusal("a Docker engine", socket.AF_UNIX, address.path)
    return _refusal("a Docker engine", socket.AF_INET, (address.hostname, address.port or 2375))


@cache
def lacks_kafka() -> str:
    """Why no Kafka broker can be started; empty if one can."""
    from testbed.errors import HostError
    from testbed.host.kafka import find_kafka

    try:
        find_kafka(os.environ)
    except HostError as lack:
        return f"needs Kafka and Java: {lack}"
    return ""


@cache
def lacks_browser() -> str:
    """Why no page can be opened; empty if one can."""
    return "" if shutil.which("chromium") else "needs Chromium: apt install chromium"


def _refusal(what: str, family: socket.AddressFamily, address: object) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        try:
            client.connect(address)
        except OSError as error:
            return f"needs {what}, at {address}: {error.strerror or error}"
    return ""


LACKS = {
    "root": lacks_root,
    "namespaces": lacks_namespaces,
    "netem": lacks_netem,
    "docker": lacks_docker,
    "kafka": lacks_kafka,
    "browser": lacks_browser,
}
NOT_QUICK = {
    **dict.fromkeys(("root", "namespaces", "docker", "kafka", "browser"), "privileged"),
    "nightly": "nightly",
    "slow": "slow",
}
"""What `--quick` leaves out, and the target of the Makefile that runs it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="skip what needs root or takes long, saying so"
    )


def pytest_configure() -> None:
    """A shell lets background jobs ignore Ctrl-C, but processes of tests must react to it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Objects from before the first test live to the end: exclude them from garbage collection.

    A collection of all generations would take a third of a second; a simulation makes one, and
    importing the tests would make several.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all tests with Podman to one process, and those with a Swarm: each begins in 30 s."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrEngine(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if "several_hosts" in nodeid or "two_engines" in nodeid or "[hosts" in nodeid:
                return "swarm"  # of which a machine has one
            return "podman" if "podman" in nodeid else super()._split_scope(nodeid)

    return ByFileOrEngine(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, lacks in LACKS.items():
        if item.get_closest_marker(marker) and (reason := lacks()):
            pytest.skip(reason)
    if item.config.getoption("quick"):
        for marker, target in NOT_QUICK.items():
            if item.get_closest_marker(marker):
                pytest.skip(f"marked {marker}, which --quick leaves out: make {target}")


IMAGE_SECONDS = 600.0
IMAGE_DISK = "4G"


@dataclass
class OwnEngine:
    """A Docker engine of a test, which it may stop, kill and restart.

    Attributes:
        folder: all its files; its path is short, for the sockets in it.
        log: its output.
        process: its daemon.
    """

    folder: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    _api: Any = None

    @property
    def address(self) -> str:
        return f"unix://{self.folder}/socket"

    @property
    def api(self) -> Any:
        """A client of the engine."""
        from docker import APIClient

        if self._api is None:
            self._api = APIClient(base_url=self.address, version="auto", timeout=60)
        return self._api

    def start(self) -> None:
        """Start it, without networks, and wait until it answers."""
        for name in ("socket", "pid"):  # left by a killed engine
            (self.folder / name).unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        wait_until(self._answers)

    def _command(self) -> list[str]:
        # In a separate network: an engine without a bridge removes docker0, even a foreign one.
        return [
            *("unshare", "--net", "dockerd", f"--host={self.address}"),
            *("--bridge=none", "--iptables=false", f"--pidfile={self.folder / 'pid'}"),
            *(f"--data-root={self.folder / 'data'}", f"--exec-root={self.folder / 'exec'}"),
        ]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it with a signal, and wait for its end."""
        assert self.process is not None
        record = self.folder / "exec/containerd/containerd.pid"
        containerd = _hold(record)
        self.process.send_signal(number)
        self.process.wait(LONGEST_SECONDS)
        if containerd is not None:
            # It dies with its parent, a moment later. The next daemon would mistake even a zombie
            # for a live one.
            select.select([containerd], [], [], LONGEST_SECONDS)
            os.close(containerd)
            record.unlink(missing_ok=True)

    def close(self) -> None:
        """End it, and every process that it started."""
        if self._api is not None:
            self._api.close()
        self.stop()
        _end_orphans(self.folder)
        _unmount(self.folder)
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LONGEST_SECONDS)
            try:
                client.connect(f"{self.folder}/socket")
                client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in client.recv(64)
            except OSError:
                return False


@dataclass
class OwnPodman(OwnEngine):
    """The same of Podman, which has no daemon but a service behind Docker's kind of socket."""

    def _command(self) -> list[str]:
        settings = self.folder / "containers.conf"
        # Locks in files: those in shared memory are those of every Podman of this host.
        lines = ['lock_type = "file"', 'events_logger = "file"', f'tmp_dir = "{self.folder}/tmp"']
        settings.write_text("\n".join(["[engine]", *lines, ""]))
        places = (f"--root={self.folder / 'data'}", f"--runroot={self.folder / 'run'}")
        options = ("--runtime=runc", "--cgroup-manager=cgroupfs")
        service = ("system", "service", "--time=0", self.address)
        # Podman leaves a copy of every image that it loads among the temporary files.
        own = (f"CONTAINERS_CONF={settings}", f"TMPDIR={self.folder}")
        return ["env", *own, "podman", *places, *options, *service]


def _hold(record: Path) -> int | None:
    """A pidfd of the process whose pid is in a file; None if there is none."""
    try:
        return os.pidfd_open(int(record.read_text()))
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None


def _end_orphans(folder: Path) -> None:
    """End the remains of a killed engine: processes that name its folder, and their children."""
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder) in status.read_text() and int(status.parent.name) != os.getpid():
                children = (status.parent / f"task/{status.parent.name}/children").read_text()
                for pid in (status.parent.name, *children.split()):
                    os.kill(int(pid), signal.SIGKILL)


def _unmount(folder: Path) -> None:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    mounted = [line.split()[1] for line in lines if line.split()[1].startswith(str(folder))]
    for target in reversed(mounted):
        subprocess.run(["umount", "--lazy", target], check=True)


@pytest.fixture(scope="session")
def own_engine() -> Callable[..., AbstractContextManager[OwnEngine]]:
    """Starts a Docker engine for a test; skips the test on a machine without dockerd."""

    @contextmanager
    def start(log: Path, *, disk_bytes: int | None = None) -> Iterator[OwnEngine]:
        if shutil.which("dockerd") is None:
            pytest.skip("needs dockerd, to start another")
        engine = OwnEngine(Path(tempfile.mkdtemp(prefix="engine-", dir="/var/tmp")), log)
        if disk_bytes is not None:
            disk = ["mount", "-t", "tmpfs", "-o", f"size={disk_bytes}", "disk", str(engine.folder)]
            subprocess.run(disk, check=True)
        try:
            engine.start()
            yield engine
        finally:
            engine.close()

    return start


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Podman that has the Docker engine's image; skips the test without either."""
    from testbed.errors import HostError
    from testbed.runtimes.docker.engine import connect
    from testbed.runtimes.docker.image import check_image

    if lacking := [tool for tool in ("podman", "runc") if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(lacking)}, to start an engine")
    log = tmp_path_factory.mktemp("podman") / "podman.log"
    engine = OwnPodman(Path(tempfile.mkdtemp(prefix="podman-", dir="/var/tmp")), log)
    with contextlib.ExitStack() as cleanup:
        try:
            docker = cleanup.enter_context(contextlib.closing(connect()))
            image = check_image(docker)
        except HostError as reason:
            pytest.skip(f"needs an engine with the image: {reason}")
        cleanup.callback(engine.close)
        disk = ["mount", "-t", "tmpfs", "-o", f"size={IMAGE_DISK}", "disk", str(engine.folder)]
        subprocess.run(disk, check=True)  # in memory, for speed
        engine.start()
        engine.api.timeout = IMAGE_SECONDS
        engine.api.load_image(docker.get_image(image))
        yield engine.address


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this clone, built from a copy."""
    folder = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns(".*", "__pycache__", "runs", "tests", "results")
    copy = shutil.copytree(Path(__file__).parents[1], folder / "sources", ignore=left_out)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    subprocess.run((*pip, *options, copy), check=True)
    shutil.rmtree(copy)
    (built,) = folder.iterdir()
    return built


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """Polls until the result is true, and returns it."""
    return wait_until


@pytest.fixture(scope="session")
def trees() -> Any:
    """A group in which this user can make control groups; skips the test without one."""
    from testbed.host.hierarchies import find_delegated, find_hierarchies
    from testbed.host.users import find_users

    found = find_delegated() if find_users().namespace else find_hierarchies()
    if not found:
        pytest.skip("needs control groups: root, or a delegated part of version 2")
    return found
