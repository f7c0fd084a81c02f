"""A process of the node ``compute``: takes the workers' requests in turn, and answers them."""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.algorithms.frame.compute import OwnCompute
from testbed.errors import NodeError, UserCodeError
from testbed.host.allocation import keep_freed_memory
from testbed.payloads import zeros
from testbed.roles.segment import (
    MESSAGE_BYTES,
    WELCOME,
    Segment,
    failure,
    step_in,
    success,
    worker_in,
)
from testbed.scenario.experiment import Experiment
from testbed.values.user_code import one_process, own_failures


@dataclass(frozen=True, eq=False)
class ServedWorker:
    """A worker, its connection, and the memory that it shares."""

    index: int
    peer: socket.socket
    segment: Segment


@dataclass
class ComputeProcess:
    """Answers the requests of all workers, together with other such processes.

    Attributes:
        compute: computes gradients.
        size: number of parameters.
        samples: number of training samples.
        channel: brings the workers' connections.
        steady: monotonic real seconds.
    """

    compute: OwnCompute
    size: int
    samples: int
    channel: socket.socket
    steady: Callable[[], float] = time.monotonic
    _poll: select.epoll = field(default_factory=select.epoll)
    _workers: dict[int, ServedWorker] = field(default_factory=dict)  # by descriptor

    def serve(self) -> None:
        """Serve until the parent has ended.

        The kernel's list of ready connections is the queue: it moves the one that it returns to the
        end. A request that another process took is no longer there.
        """
        with self.channel, self._poll:
            self._poll.register(self.channel, select.EPOLLIN)
            while True:
                ((descriptor, _),) = self._poll.poll(maxevents=1)
                if descriptor != self.channel.fileno():
                    self._look(descriptor)
                elif not self._add():
                    break
            for worker in list(self._workers.values()):
                self._remove(worker)

    def _add(self) -> bool:
        """Add a worker, in place of an earlier connection of it; False if the parent has ended."""
        told, descriptors, _, _ = socket.recv_fds(self.channel, MESSAGE_BYTES, 2)
        if not told:
            return False
        index, (connection, memory) = worker_in(told), descriptors
        for before in [one for one in self._workers.values() if one.index == index]:
            self._remove(before)
        peer = socket.socket(fileno=connection)
        try:
            worker = ServedWorker(index, peer, Segment.of(memory, self.size))
        except (NodeError, OSError) as error:
            _log(f"w{index}: {error}")
            peer.close()
        else:
            self._workers[connection] = worker
            self._poll.register(connection, select.EPOLLIN)
        finally:
            os.close(memory)
        self.channel.send(WELCOME)
        return True

    def _remove(self, worker: ServedWorker) -> None:
        # Closing it is not enough: other processes have the same connection.
        self._poll.unregister(worker.peer)
        del self._workers[worker.peer.fileno()]
        worker.peer.close()

    def _look(self, descriptor: int) -> None:
        """Answer a worker's request, if no other process has taken it."""
        worker = self._workers[descriptor]
        try:
            request = worker.peer.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            if request:
                answer = self._answer(worker, request)
                worker.peer.send(answer, socket.MSG_DONTWAIT)
                return
        except BlockingIOError:
            return
        except ConnectionError:  # it was killed meanwhile
            pass
        except NodeError as error:
            _log(f"w{worker.index}: {error}")
        self._remove(worker)

    def _answer(self, worker: ServedWorker, request: bytes) -> bytes:
        """Compute the gradient of a request into the worker's memory; return the answer.

        Raises:
            NodeError: the request is malformed.
        """
        began, step = self.steady(), step_in(request, self.samples)
        try:
            with one_process(), own_failures(f"w{worker.index}"):
                loss, gradient, _ = self.compute.gradient(step, worker.segment.parameters)
        except UserCodeError as error:
            return failure(error)
        worker.segment.gradient[:] = gradient
        return success(loss, self.steady() - began)


def serve(experiment: Experiment, channel: socket.socket) -> None:
    """Compute for the workers whose connections the channel brings, until it is closed."""
    keep_freed_memory()
    size = experiment.network.worker_layout.size
    parameters = zeros(size)
    bound = experiment.network.bind(parameters)
    data = experiment.data
    gc.freeze()
    process = ComputeProcess(
        OwnCompute(data, parameters, bound), size, len(data.train_labels), channel
    )
    process.serve()


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
