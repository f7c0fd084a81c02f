"""A process of the node ``compute``: takes the workers' requests in turn, and answers them.

If it computes several gradients at once, it takes as many requests as wait, and no more.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import Gradient, OwnCompute
from testbed.errors import HostError, NodeError, UserCodeError
from testbed.host.allocation import keep_freed_memory
from testbed.models.base import GradientRequest
from testbed.payloads import zeros
from testbed.roles.arguments import Arguments
from testbed.roles.segment import (
    MESSAGE_BYTES,
    WELCOME,
    Segment,
    failure,
    step_in,
    success,
    worker_in,
)
from testbed.roles.warm_up import load_kernels
from testbed.scenario.experiment import Experiment
from testbed.values.user_code import one_process, own_failures

Result = TypeVar("Result")


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
    """

    compute: OwnCompute
    size: int
    samples: int
    channel: socket.socket
    _poll: select.epoll = field(default_factory=select.epoll)
    _workers: dict[int, ServedWorker] = field(default_factory=dict)  # by descriptor

    def serve(self) -> None:
        """Serve until the parent has ended.

        The kernel's list of ready connections is the queue: it moves the one that it returns to the
        end. A request that another process took is no longer there.
        """
        with self.channel, self._poll:
            self._poll.register(self.channel, select.EPOLLIN)
            while self._serve_ready():
                pass
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

    def _serve_ready(self) -> bool:
        """Answer those who wait, at most as many as are computed at once.

        Returns:
            False if the parent has ended.
        """
        ready = [descriptor for descriptor, _ in self._poll.poll(maxevents=self.compute.together)]
        asked = list[tuple[ServedWorker, Step]]()
        for worker in [self._workers[one] for one in ready if one != self.channel.fileno()]:
            step = self._take(worker)
            if step is not None:
                asked.append((worker, step))
        if asked:
            self._answer(asked)
        return self.channel.fileno() not in ready or self._add()

    def _take(self, worker: ServedWorker) -> Step | None:
        """Return the step that a worker asks for; None if another process has taken the request.

        A worker that has ended, or whose request is malformed, is removed.
        """
        try:
            request = worker.peer.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            if request:
                return step_in(request, self.samples)
        except BlockingIOError:
            return None
        except ConnectionError:  # it was killed meanwhile
            pass
        except NodeError as error:
            _log(f"w{worker.index}: {error}")
        self._remove(worker)
        return None

    def _computed(
        self, asked: Sequence[tuple[ServedWorker, Step]]
    ) -> Iterator[tuple[ServedWorker, Gradient | bytes]]:
        """Yield gradients, each lent until the next; the answer if the user's code failed."""
        compute = self.compute
        if compute.together == 1:
            for worker, step in asked:
                work = partial(compute.gradient, step, worker.segment.parameters)
                yield worker, _tried(worker, work)
            return
        requests = dict[int, GradientRequest]()
        for place, (worker, step) in enumerate(asked):
            request = _tried(worker, partial(compute.request, step, worker.segment.parameters))
            if isinstance(request, bytes):
                yield worker, request
            else:
                requests[place] = request
        if requests:
            found = compute.at_once([*requests.values()])
            yield from zip((asked[place][0] for place in requests), found, strict=True)

    def _answer(self, asked: Sequence[tuple[ServedWorker, Step]]) -> None:
        """Compute gradients into the workers' memory, and send them loss and duration."""
        began = time.monotonic()
        for worker, found in self._computed(asked):
            if isinstance(found, Gradient):
                worker.segment.gradient[:] = found.values
                answer = success(found.loss, time.monotonic() - began)
            else:
                answer = found
            try:
                worker.peer.send(answer, socket.MSG_DONTWAIT)
            except BlockingIOError:  # it has never read an answer
                pass
            except ConnectionError:  # it was killed meanwhile
                self._remove(worker)


def serve(
    experiment: Experiment,
    channel: socket.socket,
    *,
    arguments: Arguments,
    number: int,
    at_once: int,
) -> None:
    """Compute for the workers whose connections the channel brings, until it is closed.

    Args:
        experiment: the run's.
        channel: brings the connections.
        arguments: the node's.
        number: that of this process, which says for all of them why it computes one by one.
        at_once: maximum number of gradients at once, if the network can.

    Raises:
        HostError: PyTorch cannot use the node's GPU, or its memory is not enough.
    """
    import torch

    keep_freed_memory()
    parameters, data = zeros(experiment.network.worker_layout.size), experiment.data
    device = arguments.open_device(number)
    try:
        compute = experiment.compute(parameters, device=device, at_once=at_once)
        if device is not None:
            load_kernels(compute, data, batch_size=experiment.scenario.workers.batch_size)
        if compute.one_by_one and number == 0:
            arguments.one_by_one.write_text(compute.one_by_one, encoding="utf-8")
        gc.freeze()
        ComputeProcess(compute, parameters.size, len(data.train_labels), channel).serve()
    except torch.cuda.OutOfMemoryError as error:
        raise HostError(
            f"the GPU has not enough memory for {at_once:,} gradients at once: {error}",
            hint="Set a smaller compute.vmap or workers.batch_size, or larger compute.gpus.",
        ) from None


def _tried(worker: ServedWorker, work: Callable[[], Result]) -> Result | bytes:
    """Compute for a worker; return the answer for it if the user's code fails."""
    try:
        with one_process(), own_failures(f"w{worker.index}"):
            return work()
    except UserCodeError as error:
        return failure(error)


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
