"""Sends thirty datagrams, ten per second, or prints those that arrive."""

import socket
import sys
import time

role, port, name = sys.argv[1:]
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if role == "collect":
    own.bind(("", int(port)))
    print("ready", flush=True)
    while True:
        print(own.recv(100).decode(), flush=True)
for beat in range(30):
    print(time.time(), flush=True)
    own.sendto(f"{name}-{beat}".encode(), ("collector", int(port)))
    time.sleep(0.1)
