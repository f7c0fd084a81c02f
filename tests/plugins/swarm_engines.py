"""Two engines of a Swarm, and what tests of runs over both do with them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warm_commands import Command, CommandRunner

from testbed.runtimes.docker.containers import RUN

SECONDS = 180.0

SCENARIO = """
name: apart
seed: 1
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
runtime: {docker: {hosts: {swarm: {placement: {slow: rack=a}}}}}
workers:
  count: 4
  classes:
    fast: {share: 0.5}
    slow: {share: 0.5, link: {up: {rate: 10mbit}, down: {rate: 20mbit}}}
stop: {updates: UPDATES}
evaluate: {every: 50, images: 100}
faults:
  - freeze: {workers: [w2], at: {version: 20}, for: 200ms}
  - slow: {workers: [w3], at: {version: 40}, factor: 100, for: 200ms}
"""


class Engines:
    """Two engines, and commands of testbed on the host of the first."""

    def __init__(self, addresses: list[str], run_command: CommandRunner, folder: Path) -> None:
        from docker import APIClient

        self.addresses = addresses
        self.clients = [APIClient(base_url=address) for address in addresses]
        self.folder = folder
        self._run_command = run_command
        self._started: list[Command] = []
        self._environment = {
            **os.environ,
            "DOCKER_HOST": addresses[0],
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def __call__(self, *words: str, status: int = 0) -> str:
        done = self._run_command(
            [*words], cwd=self.folder, environment=self._environment, timeout=SECONDS
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *words: str) -> Command:
        command = self._run_command.start([*words], cwd=self.folder, environment=self._environment)
        self._started.append(command)
        return command

    def train(self, file: str, run: str, *more: str) -> Command:
        """Start a run, and return once its training has begun."""
        controller = self.start("up", file, "--name", run, *more)
        events = self.folder / "runs" / run / "events.jsonl"
        self.wait(controller, lambda: events.exists() and '"training"' in events.read_text())
        return controller

    def wait(self, controller: Command, look: Callable[[], bool]) -> None:
        """Wait until something is seen of a run that its controller brings up."""
        deadline = time.monotonic() + SECONDS
        while not look():
            assert controller.poll() is None, controller.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def relabel(self, **labels: str) -> None:
        """Give the second node these labels, in place of those that it has, and have it active."""
        self._change_second(Labels=labels, Availability="active")

    def drain(self) -> str:
        """Have the Swarm drain the second node; return its name."""
        return self._change_second(Availability="drain")

    def _change_second(self, **changes: Any) -> str:
        client = self.clients[0]
        node = next(one for one in client.nodes() if not one.get("ManagerStatus"))
        client.update_node(node["ID"], node["Version"]["Index"], {**node["Spec"], **changes})
        return str(node["Description"]["Hostname"])

    def stop(self) -> None:
        """End the commands that were started and still run."""
        for command in self._started:
            command.kill()
            command.communicate()

    def left(self, run: str, number: int) -> tuple[list[Any], list[Any]]:
        """The containers and volumes of a run in an engine."""
        client, label = self.clients[number], {"label": f"{RUN}={run}"}
        containers = client.containers(all=True, filters=label)
        return containers, client.volumes(filters=label)["Volumes"] or []

    def running(self, run: str) -> list[str]:
        """The running containers of a run in both engines."""
        both = [*self.left(run, 0)[0], *self.left(run, 1)[0]]
        return [one["Names"][0] for one in both if one["State"] == "running"]
