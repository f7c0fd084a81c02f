"""Engines of other hosts are reached by ssh, TLS and contexts, or it is said what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from testbed.errors import HostError
from testbed.runtimes.docker import reach
from testbed.runtimes.docker.reach import NoEngineError, socket_of

LONG = b"x" * 3_000_000


class Engine(socketserver.StreamRequestHandler):
    """Answers a ping as an engine does; anything else comes back once all of it has arrived.

    If told to stream, it does not wait for the end.
    """

    def handle(self) -> None:
        first = self.rfile.readline()
        if first.startswith(b"GET /_ping"):
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nOK")
            return
        if first == b"stream\n":
            self.wfile.write(LONG)
        self.wfile.write(b"all:" + first + self.rfile.read())


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class TlsServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def finish_request(self, request: socket.socket, client_address: str) -> None:  # type: ignore[override]
        with self.context.wrap_socket(request, server_side=True) as peer:
            super().finish_request(peer, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client whose certificate is not accepted is not shown."""


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    with server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield
        server.shutdown()


def exchange(path: str, data: bytes) -> bytes:
    """Send data and its end through a socket, and return all that comes back."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(30.0)
        peer.connect(path)
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        pieces = []
        while piece := peer.recv(65536):
            pieces.append(piece)
        return b"".join(pieces)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """End what forwards connections after each test."""
    yield
    for forward in reach._forwards.values():  # as at the end of the process
        forward.close()
    reach._forwards.clear()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "engine.sock"
    with serving(UnixServer(str(path), Engine)):
        yield path


@pytest.fixture
def sshd(ssh: Any) -> Iterator[int]:
    """The port of an ssh server on this host."""
    with ssh.serve("127.0.0.1") as port:
        yield port


@pytest.mark.root
def test_an_engine_is_reached_by_ssh(
    sshd: int, engine: Path, eventually: Callable[[Callable[[], object]], object]
) -> None:
    address = f"ssh://root@127.0.0.1:{sshd}{engine}"
    path = socket_of(address)
    assert exchange(path, b"a\n" + LONG) == b"all:a\n" + LONG
    assert Path(path).parent.stat().st_mode & 0o077 == 0
    assert socket_of(address) == path
    reach._forwards[address].close()
    eventually(lambda: not Path(path).parent.exists())
    assert exchange(socket_of(address), b"b\n") == b"all:b\n"  # reached again


def test_a_signal_after_the_program_does_not_end_the_removal_of_its_folder(tmp_path: Path) -> None:
    removal = tmp_path / "bin/rm"
    removal.parent.mkdir()
    removal.write_text(f'#!/bin/sh\nkill -TERM 0\nexec {shutil.which("rm")} "$@"\n')
    removal.chmod(0o755)
    folder = tmp_path / "of a forward"
    folder.mkdir()
    path = f"{removal.parent}:{os.environ['PATH']}"
    command = ["sh", "-c", reach.UNTIL_THE_END, str(folder), "true"]
    subprocess.run(command, env={"PATH": path}, start_new_session=True, check=True)
    assert not folder.exists()


@pytest.mark.root
def test_what_ssh_says_is_explained(sshd: int, ssh: Any, engine: Path) -> None:
    address = f"ssh://root@127.0.0.1:{sshd}"
    with pytest.raises(NoEngineError, match="no engine answers at its /none") as refusal:
        socket_of(f"{address}/none")
    assert "sudo systemctl start docker" in refusal.value.hint
    (ssh.folder / "own.pub").write_text("")
    with pytest.raises(NoEngineError, match="does not accept your key") as refusal:
        socket_of(f"{address}{engine}")
    assert "ssh-copy-id" in refusal.value.hint
    (ssh.folder / "known").write_text("")
    with pytest.raises(NoEngineError, match="its key is not known here") as refusal:
        socket_of(f"{address}{engine}")
    assert f"ssh -p {sshd} root@127.0.0.1" in refusal.value.hint
    with pytest.raises(NoEngineError, match=r"is not reached: .*Connection refused") as refusal:
        socket_of("ssh://root@127.0.0.1:1")
    assert refusal.value.hint == "Try: ssh -p 1 root@127.0.0.1"


@pytest.fixture
def tls_port(certificates: Path) -> Iterator[int]:
    """The port of an engine that asks for a certificate."""
    server = TlsServer(("127.0.0.1", 0), Engine)
    server.context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.pem"
    )
    server.context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    server.context.verify_mode = ssl.CERT_REQUIRED
    with serving(server):
        yield int(server.server_address[1])


def test_an_engine_is_reached_by_tls(
    tls_port: int, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates))
    path = socket_of(f"tcp://127.0.0.1:{tls_port}")
    assert exchange(path, b"a\n" + LONG) == b"all:a\n" + LONG
    with pytest.raises(NoEngineError, match=r"not reached: .*[Cc]ertificate") as refusal:
        socket_of(f"tcp://localhost:{tls_port}")  # the certificate has another name
    assert "docker --tlsverify" in refusal.value.hint


def test_what_arrives_as_this_end_is_ended_is_not_lost(
    tls_port: int, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates))
    path = socket_of(f"tcp://127.0.0.1:{tls_port}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(path)
        peer.sendall(b"stream\n")
        came = peer.recv(1)
        peer.shutdown(socket.SHUT_WR)
        while piece := peer.recv(65536):
            came += piece
    assert came == LONG + b"all:stream\n"


def test_an_engine_that_refuses_a_certificate_is_named(
    tls_port: int, others_certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CERT_PATH", str(others_certificates))
    with pytest.raises(NoEngineError, match=r"not reached: .*alert"):
        socket_of(f"tcp://127.0.0.1:{tls_port}")


def test_a_key_with_a_pass_phrase_is_refused(
    tls_port: int, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = certificates / "key.pem"
    locked = certificates / "locked.pem"
    lock = ["openssl", "pkey", "-in", key, "-out", locked, "-aes256", "-passout", "pass:sesame"]
    subprocess.run(lock, check=True, capture_output=True)
    locked.rename(key)
    monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates))
    with pytest.raises(NoEngineError, match="not reached: "):
        socket_of(f"tcp://127.0.0.1:{tls_port}")


def test_the_name_of_a_host_is_as_it_is_spelt() -> None:
    for address, login in (
        ("pi@Pi-2:22", "pi@Pi-2"),
        ("Pi-2", "Pi-2"),
        ("a@[fe80::1]:22", "a@fe80::1"),
    ):
        assert reach._login(urlsplit(f"ssh://{address}/x")) == login


def test_a_context_says_where_an_engine_is(
    tls_port: int, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    identity = sha256(b"pi-2").hexdigest()  # as the client of Docker names its folders
    meta = tmp_path / "contexts/meta" / identity
    meta.mkdir(parents=True)
    host = {"Host": f"tcp://127.0.0.1:{tls_port}", "SkipTLSVerify": False}
    (meta / "meta.json").write_text(json.dumps({"Name": "pi-2", "Endpoints": {"docker": host}}))
    shutil.copytree(certificates, tmp_path / "contexts/tls" / identity / "docker")
    path = socket_of("context:pi-2")
    assert exchange(path, b"a\n") == b"all:a\n"
    with pytest.raises(HostError, match="has no context pi-3") as refusal:
        socket_of("context:pi-3")
    assert "docker context create pi-3" in refusal.value.hint


@pytest.mark.parametrize(
    "address",
    ["/run/pi-2.sock", "http://pi-2", "ssh://", "tcp://", "tcp://pi-2:port", "unix://pi-2/x"],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(HostError, match="expected unix:///PATH, ssh://USER@HOST, tcp://HOST:2376"):
        socket_of(address)


def test_without_tls_no_engine_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(HostError, match=r"there is no certificate .*ca\.pem; without TLS") as error:
        socket_of("tcp://127.0.0.1:2375")
    assert "ssh://USER@127.0.0.1" in error.value.hint
