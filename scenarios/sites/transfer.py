"""Sends bytes over TCP, or collects those of several senders and says how long they took."""

import socket
import sys
import threading
import time

CHUNK = bytes(1 << 16)


def send(host: str, port: int, count: int) -> None:
    """Send this many bytes."""
    with socket.create_connection((host, port)) as peer:
        begin = time.monotonic()
        for start in range(0, count, len(CHUNK)):
            peer.sendall(CHUNK[: count - start])
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)  # the collector closes once it has everything
        print(f"sent {count} bytes in {time.monotonic() - begin:.2f} s")


def collect(port: int, senders: int) -> None:
    """Receive everything from this many senders; print the time from the first byte to the last."""
    times: list[float] = []
    counts: list[int] = []

    def receive(peer: socket.socket) -> None:
        count = 0
        with peer:
            while data := peer.recv(len(CHUNK)):
                times.append(time.monotonic())
                count += len(data)
        counts.append(count)

    with socket.create_server(("", port)) as server:
        threads = []
        for _ in range(senders):
            threads.append(threading.Thread(target=receive, args=(server.accept()[0],)))
            threads[-1].start()
        for thread in threads:
            thread.join()
    seconds = max(times) - min(times)
    print(f"received {sum(counts)} bytes in {seconds:.3f} s")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", host, port, count]:
            send(host, int(port), int(count))
        case ["collect", port, senders]:
            collect(int(port), int(senders))
        case _:
            sys.exit("usage: transfer.py send HOST PORT COUNT | collect PORT SENDERS")
