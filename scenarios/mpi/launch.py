"""Starts the daemons of Open MPI at other nodes, in place of ssh.

python launch.py serve PORT             at every node: run the commands that arrive
python launch.py at PORT NODE WORD...   what mpirun calls as it would call: ssh NODE WORD...
"""

import socket
import subprocess
import sys


def serve(port: int) -> None:
    """Run the commands that arrive, one after another; what they print is printed here."""
    with socket.create_server(("", port)) as server:
        while True:
            peer, _ = server.accept()
            with peer:
                command = peer.makefile("rb").read().decode()
                status = subprocess.run(["/bin/sh", "-c", command], check=False).returncode
                peer.sendall(str(status).encode())


def run_at(node: str, port: int, command: str) -> int:
    """Run a command at another node; return its exit status."""
    with socket.create_connection((node, port)) as peer:
        peer.sendall(command.encode())
        peer.shutdown(socket.SHUT_WR)
        return int(peer.makefile("rb").read() or 1)  # the node has ended without an answer


if __name__ == "__main__":
    what, port, *rest = sys.argv[1:]
    if what == "serve":
        serve(int(port))
    sys.exit(run_at(rest[0], int(port), " ".join(rest[1:])))
