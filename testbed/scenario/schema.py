"""The schema of a scenario, which describes one experiment. Unknown fields are errors.

Durations in a scenario are in emulated time: ``time_scale`` emulated seconds pass per real second.
"""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from testbed.algorithms import Adsp, Algorithm
from testbed.datasets import Dataset
from testbed.errors import InvalidValue
from testbed.faults import Fault
from testbed.models import Model
from testbed.payloads.encodings import Encoding
from testbed.runtimes import Native, Runtime, Simulated
from testbed.scenario.direction import Link
from testbed.scenario.durations import Codec, RandomDuration, Speed, class_pace
from testbed.scenario.per_device import Deal
from testbed.scenario.settings import Attendance, Checkpoint, ComputeSettings, Evaluate, Own, Stop
from testbed.scenario.streams import StreamSettings
from testbed.values.cpu_sets import CpuSet
from testbed.values.fields import (
    Count,
    Cpus,
    Folder,
    Gpus,
    Image,
    Key,
    Name,
    NodeName,
    PositiveDuration,
    PositiveSize,
    Seed,
    Share,
    StrictModel,
    Word,
    not_auto,
    not_empty,
    replaced,
    version_one,
)
from testbed.values.topology import End, LaunchMode, Missing, Offload
from testbed.values.units import Duration


class PsSettings(StrictModel):
    """The parameter server. If CPUs are busy, it gets ten times the CPU time of a worker.

    Attributes:
        link: link of the parameter server, which carries the traffic of all workers.
        service: emulated time to serve one pull or push. Requests are served one at a time, in
            order of arrival; a reply is sent after this time. By default as fast as the host.
        dead_after: emulated time without a message from a worker, after which the parameter server
            removes the worker as if it had left. The time starts when the worker receives a reply,
            or crashes. By default workers are never removed.
        cpu: CPU limit, in CPUs.
        cpuset: CPUs of the host that the parameter server may use.
        memory: memory limit; by default half of the host's memory.
        scratch: size of /tmp, and also of /dev/shm; files there count towards the memory limit.
            16MiB by default.
    """

    link: Link = Link()
    service: PositiveDuration | None = None
    dead_after: PositiveDuration | None = None
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None
    scratch: PositiveSize | None = None


class DeviceClass(StrictModel):
    """A class of devices.

    Attributes:
        share: fraction of the workers that are not in a class with a `count`; the shares of all
            classes must add up to 1. By default 1.
        count: number of workers in this class, instead of a share.
        speed: emulated time of one training step: a duration, a random duration, a base and a time
            per sample, a law or a table for each device, or a device's profile. If computing takes
            less, the worker waits for the rest of this time. By default as long as on the host.
        think: think time, the wait between computing and pushing; overrides `workers.think`.
        link: link of each worker.
        cpu: CPU limit of each worker, in CPUs.
        cpuset: CPUs of the host that the workers may use.
        memory: memory limit of each worker; by default half of the host's memory.
        scratch: size of /tmp of each worker, and also of /dev/shm; files there count towards the
            memory limit. 16MiB by default.
        gpus: number of NVIDIA GPUs that each worker has, or its share of one, such as 0.25; it
            computes gradients on the first. By default none.
    """

    share: Share | None = None
    count: Count | None = None
    speed: Speed | None = None
    think: RandomDuration | None = None
    link: Link = Link()
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None
    scratch: PositiveSize | None = None
    gpus: Gpus = 0

    @model_validator(mode="after")
    def _share_or_count(self) -> DeviceClass:
        if self.share is not None and self.count is not None:
            raise InvalidValue(
                f"a share of {self.share:g} and a count of {self.count}",
                "either a share or a count",
            )
        return self

    def mean_step(self, samples: int) -> float | None:
        """Return the mean emulated seconds of a training step with this many samples.

        None if the class has no speed.
        """
        pace = class_pace(self.speed)
        return None if pace is None else pace.mean(samples)


SHARES_ROUNDING = 1.5e-3
"""Tolerance for the sum of shares rounded to three digits, such as 19 of 0.0526."""


class Workers(StrictModel):
    """The workers.

    Attributes:
        count: number of workers, at most a million.
        batch_size: samples per mini-batch.
        think: think time, the wait between computing and pushing, of classes that do not set one.
        classes: device classes by name, in the order in which w0, w1, ... are assigned to them.
        availability: when each worker is present: a recording, or periods that are drawn; by
            default all workers are always present.
        deal: deals the shares of the data to devices by their speed; by default independently.
    """

    count: Annotated[int, Field(ge=1, le=10**6, strict=True)]
    batch_size: Count = 10
    think: RandomDuration | None = None
    availability: Attendance | None = None
    deal: Deal | None = None
    classes: dict[Key, DeviceClass] = Field(default={"default": DeviceClass()}, min_length=1)

    @model_validator(mode="after")
    def _classes_add_up(self) -> Workers:
        counted, shares = self._counted(), self._shares()
        if not shares and counted != self.count:
            raise InvalidValue(
                f"classes whose counts add up to {counted:,}",
                f"counts that add up to workers.count, {self.count:,}",
            )
        if shares and counted >= self.count:
            found = f"classes whose counts add up to {counted:,} next to classes with a share"
            expected = f"counts that add up to less than workers.count, {self.count:,}"
            raise InvalidValue(found, expected)
        if shares and abs(sum(shares.values()) - 1) > SHARES_ROUNDING:
            total = sum(shares.values())
            raise InvalidValue(
                f"classes whose shares add up to {total:g}", "shares that add up to 1"
            )
        return self

    def think_of(self, name: str) -> RandomDuration | None:
        """Return the think time of a class's workers."""
        return self.classes[name].think or self.think

    def class_counts(self) -> dict[str, int]:
        """Return the number of workers per class: its count, or its share of the uncounted workers.

        The largest remainders are rounded up.
        """
        shares, left = self._shares(), self.count - self._counted()
        total = sum(shares.values())
        exact = {name: share / total * left for name, share in shares.items()}
        counts = {
            name: member.count or int(exact[name] + 1e-9) for name, member in self.classes.items()
        }
        by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
        for name in by_remainder[: self.count - sum(counts.values())]:
            counts[name] += 1
        return counts

    def worker_classes(self) -> tuple[str, ...]:
        """Return the class of every worker, by index: the first class has w0, w1, ..."""
        return tuple(name for name, count in self.class_counts().items() for _ in range(count))

    def _counted(self) -> int:
        """Return the number of workers in classes with a count."""
        return sum(member.count or 0 for member in self.classes.values())

    def _shares(self) -> dict[str, float]:
        """Return the shares of the classes without a count."""
        return {
            name: 1.0 if member.share is None else member.share
            for name, member in self.classes.items()
            if member.count is None
        }


class NetworkSettings(StrictModel):
    """Use of kernel features by the links.

    Attributes:
        missing: what to do if a link needs netem and the kernel lacks it: `fail`, or `warn` and run
            without the settings that need netem.
        offload: segmentation offloads of the links: `on`, `off`, or `auto`, which disables them on
            links that netem cannot emulate with offloads, for example with packet loss.
    """

    missing: Missing = "fail"
    offload: Offload = "auto"


class CommandSettings(StrictModel):
    """What a program runs, and what its node has.

    Attributes:
        command: the program and its arguments, without a shell.
        link: link of the node.
        cpu: CPU limit, in CPUs.
        cpuset: CPUs of the host that the program may use.
        memory: memory limit; by default half of the host's memory.
        scratch: size of /tmp, and also of /dev/shm; files there count towards the memory limit.
            16MiB by default.
        folders: folders of the host, mounted read-only at the same paths, even if they are hidden
            from nodes or missing in the image.
    """

    command: Annotated[tuple[Word, ...], Field(strict=False), AfterValidator(not_empty)]
    link: Link = Link()
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None
    scratch: PositiveSize | None = None
    folders: Annotated[tuple[Folder, ...], Field(strict=False)] = ()


class ProgramSettings(CommandSettings):
    """A command that runs in its own node, isolated like all nodes.

    Attributes:
        command: the program and its arguments, without a shell; `{ps}`, `{w3}` or the name of
            another program in braces is replaced by the address of that node.
        image: an image of the Docker engine from which the node's container is made; by default
            testbed's. `command` replaces its entrypoint.
        end: what happens if the program exits before the end of training: `fatal`, the run fails;
            `noticed`, the exit is reported and the run continues; `expected`, like `noticed`, but
            an exit with status 0 is not reported.
    """

    image: Image | None = None
    end: End = "fatal"


class Scenario(StrictModel):
    """One experiment.

    Attributes:
        version: version of the scenario format.
        name: prefix of the names of the scenario's runs.
        seed: seed of all random draws.
        runtime: the runtime that creates the containers, or simulates them.
        algorithm: the training algorithm: what workers send, and how the parameter server applies
            it.
        model: the model to train.
        dataset: the training and test data, and the partition among the workers.
        compute: where gradients are computed: `own`, by each worker; `shared`, by one node;
            `auto` chooses.
        ps: the parameter server.
        workers: the devices.
        streams: delivery of samples during training; by default all samples are available from the
            start.
        programs: commands that run in their own nodes, by name of the node.
        network: use of kernel features by the links.
        faults: planned faults: what happens during training, when, and to which nodes.
        stop: when training ends.
        evaluate: evaluation of the model during training.
        checkpoint: how often the state of training is saved; never by default.
        codec: emulated time of encoding and decoding in a simulation, by default 0. In other
            runtimes, both take their real time.
        encoding: encoding of pushes: `raw`; `packed` sends the same numbers in fewer bytes,
            `packed16` rounds values to float16 first. Pulls are always raw.
        launch: `warm` forks workers from one process that has imported everything, `cold` starts
            each worker as a new process.
        time_scale: emulated seconds per real second.
        paced: whether think times, speeds and the parameter server's service time determine the
            pace of the run; if false, the host does, and a busy host does not make the run invalid.
    """

    version: Annotated[Literal[1], BeforeValidator(version_one)] = 1
    name: Name
    seed: Seed = 0
    runtime: Runtime = Native(name="native")
    algorithm: Algorithm
    model: Model
    dataset: Dataset
    compute: ComputeSettings = Own(name="own")
    ps: PsSettings = PsSettings()
    workers: Workers
    streams: StreamSettings | None = None
    programs: dict[NodeName, ProgramSettings] = Field(default={})
    network: NetworkSettings = NetworkSettings()
    faults: Annotated[tuple[Fault, ...], Field(strict=False)] = ()
    stop: Stop
    evaluate: Evaluate = Evaluate()
    checkpoint: Checkpoint | None = None
    codec: Codec | None = None
    encoding: Encoding = "raw"
    launch: LaunchMode = "warm"
    time_scale: Annotated[float, Field(ge=0.01, le=1e6, strict=True), BeforeValidator(not_auto)] = (
        1.0
    )
    paced: Annotated[bool, Field(strict=True)] = True

    @model_validator(mode="after")
    def _evaluates_often(self) -> Scenario:
        if self.evaluate.every is not None:
            return self
        every = self.stop.twentieth(getattr(self.algorithm, "local_steps", None) or 1)
        if isinstance(every, Duration) and isinstance(self.algorithm, Adsp):
            trial = self.algorithm.check_period  # must be a multiple of the interval
            every = Duration(trial / max(1, ceil(trial / every)))
        return replaced(self, ("evaluate", "every"), every)

    @property
    def simulated(self) -> bool:
        """Whether the scenario runs on a virtual clock, without containers."""
        return isinstance(self.runtime, Simulated)

    @property
    def is_paced(self) -> bool:
        """Whether speeds, think times or a service time determine the pace of the run."""
        classes = self.workers.classes.values()
        paces = [self.workers.think, self.ps.service, *(one.speed or one.think for one in classes)]
        return self.paced and any(pace is not None for pace in paces)
