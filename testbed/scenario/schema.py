"""The scenario: one file, one experiment. All fields are enforced; unknown fields are errors.

Seconds in a scenario are emulated seconds; ``time_scale`` is the number per real second.
"""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from testbed.algorithms import Adsp, Algorithm
from testbed.datasets import Dataset
from testbed.errors import InvalidValue
from testbed.faults import Fault
from testbed.models import Model
from testbed.payloads.encodings import Encoding
from testbed.runtimes import Native, Runtime, Simulated
from testbed.scenario.direction import Link, Recording
from testbed.scenario.durations import LEAST_INTERVAL, Codec, RandomDuration, Speed, StepTime
from testbed.scenario.streams import StreamSettings
from testbed.values.cpu_sets import CpuSet
from testbed.values.fields import (
    Count,
    Cpus,
    Folder,
    Gpus,
    Key,
    Name,
    NodeName,
    PositiveDuration,
    PositiveNumber,
    PositiveSize,
    Seed,
    Share,
    StrictModel,
    Word,
    not_auto,
    not_empty,
    version_one,
)
from testbed.values.topology import End, LaunchMode, Missing, Offload
from testbed.values.units import Duration


class PsSettings(StrictModel):
    """The parameter server; without limits it has the CPU weight of ten workers.

    Attributes:
        link: its link, which all workers share.
        service: emulated time to serve one pull or push; requests are served one at a time in order
            of arrival, each before its reply is sent. None for the speed of the host.
        dead_after: the parameter server removes a worker, as if it had left, if it receives nothing
            from it for this long, in emulated time, although the worker has its reply or has
            crashed. None for never.
        cpu: CPU limit, in CPUs.
        cpuset: CPUs of the host that it may use.
        memory: memory limit; by default half of the host's memory.
        scratch: size of its /tmp, and of its /dev/shm; both count as memory that it uses. 16MiB by
            default.
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
        share: share of the workers that are not in a class with a `count`; the shares of all
            classes add up to 1. By default 1.
        count: number of workers in this class, instead of a share.
        speed: emulated time of one training step: a duration, a random duration, or a base and a
            time per sample. A step that really takes less waits for the rest.
        think: wait between computing and pushing, instead of the one of all workers.
        link: link of each of its workers.
        cpu: CPU limit of each, in CPUs.
        cpuset: CPUs of the host that they may use.
        memory: memory limit of each; by default half of the host's memory.
        scratch: size of the /tmp of each, and of its /dev/shm; both count as memory that it uses.
            16MiB by default.
        gpus: number of GPUs that each sees; requires Docker with an NVIDIA runtime.
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
                f"a share of {self.share:g} and a count of {self.count}", "one of the two"
            )
        return self

    @property
    def each_sample(self) -> float:
        """Emulated seconds of a training step per sample of its batch."""
        return float(self.speed.each) if isinstance(self.speed, StepTime) else 0.0

    def mean_step(self, samples: int) -> float | None:
        """Return the mean emulated seconds of a training step with this many samples.

        None for full speed.
        """
        match self.speed:
            case StepTime(base=base):
                return base + self.each_sample * samples
            case RandomDuration(mean=mean):
                return float(mean)
        return None if self.speed is None else float(self.speed)


SHARES_ROUNDING = 1.5e-3
"""Tolerance for the sum of shares rounded to three digits, such as 19 of 0.0526."""


class Workers(StrictModel):
    """The workers.

    Attributes:
        count: number of workers.
        batch_size: samples per mini-batch.
        think: wait between computing and pushing, for classes without their own.
        classes: device classes by name; workers are assigned to them in this order.
        availability: a recording of when each worker is present; by default always.
    """

    count: Count
    batch_size: Count = 10
    think: RandomDuration | None = None
    availability: Recording | None = None
    classes: dict[Key, DeviceClass] = Field(default={"default": DeviceClass()}, min_length=1)

    @model_validator(mode="after")
    def _classes_add_up(self) -> Workers:
        counted, shares = self._counted(), self._shares()
        if not shares and counted != self.count:
            raise InvalidValue(
                f"classes whose counts add up to {counted:,}", f"`count`, which is {self.count:,}"
            )
        if shares and counted >= self.count:
            found = f"classes whose counts add up to {counted:,} next to classes with a share"
            raise InvalidValue(found, f"less than `count`, which is {self.count:,}")
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
    """Kernel features that the links use.

    Attributes:
        missing: `fail` or `warn` if a link needs netem and the kernel lacks it.
        offload: segmentation offloads of the links; `auto` disables them on links with packet loss.
    """

    missing: Missing = "fail"
    offload: Offload = "auto"


class Stop(StrictModel):
    """When training ends: at the first criterion that is met. At least one is required.

    Attributes:
        updates: number of updates in the model; possibly more if some are applied together.
        steps: number of training steps of all workers in the model.
        time: emulated time since the start of training.
        accuracy: top-1 accuracy of an evaluation during training.
        loss: loss of an evaluation during training, at most this.
    """

    updates: Count | None = None
    steps: Count | None = None
    time: PositiveDuration | None = None
    accuracy: Share | None = None
    loss: PositiveNumber | None = None

    @model_validator(mode="after")
    def _something(self) -> Stop:
        if all(rule is None for _, rule in self):
            raise InvalidValue(
                "nothing that would end the run", "updates, steps, time, accuracy or loss"
            )
        return self

    def twentieth(self, local_steps: int) -> int | Duration:
        """Return the evaluation interval for a curve of at least twenty points.

        Args:
            local_steps: training steps per update.
        """
        steps = None if self.steps is None else self.steps // local_steps
        counts = [count for count in (self.updates, steps) if count is not None]
        if not counts and self.time is not None:
            return Duration(max(self.time / 20, LEAST_INTERVAL))
        return max(1, min([1000, *(count // 20 for count in counts)])) if counts else 100


class ProgramSettings(StrictModel):
    """A command that runs as its own node, isolated like all nodes.

    Attributes:
        command: the program and its arguments, without a shell; `{ps}`, `{w3}` or the name of
            another program in braces is replaced by the address of that node.
        link: its link.
        cpu: CPU limit, in CPUs.
        cpuset: CPUs of the host that it may use.
        memory: memory limit; by default half of the host's memory.
        scratch: size of its /tmp, and of its /dev/shm; both count as memory that it uses. 16MiB by
            default.
        folders: folders of the host, mounted read-only at the same paths, even if they are hidden
            from nodes or missing in the image.
        end: what its end before the end of training means: `fatal`, the run fails; `noticed`, the
            run reports it and continues; `expected`, like `noticed`, but an exit status of 0 is not
            reported.
    """

    command: Annotated[tuple[Word, ...], Field(strict=False), AfterValidator(not_empty)]
    link: Link = Link()
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None
    scratch: PositiveSize | None = None
    folders: Annotated[tuple[Folder, ...], Field(strict=False)] = ()
    end: End = "fatal"


class Evaluate(StrictModel):
    """The evaluator. At the end of the run it evaluates the model on all test images.

    Attributes:
        every: evaluation interval, in updates or in emulated time. By default a twentieth of the
            updates, steps or time in `stop`, and at most 1,000 updates.
        images: number of test images, always the same, of an evaluation during training.
        timeout: maximum real time of one evaluation; if it takes longer, the run fails.
    """

    every: Count | PositiveDuration | None = None
    images: Count = 2000
    timeout: PositiveDuration = Duration(600)


class Checkpoint(StrictModel):
    """Saves the state of training, to resume it after the parameter server has ended.

    Attributes:
        every: checkpoint interval, in updates or in emulated time.
    """

    every: Count | PositiveDuration


class Scenario(StrictModel):
    """One experiment.

    Attributes:
        version: version of the scenario format.
        name: prefix of the names of its runs.
        seed: seed of all random draws.
        runtime: what creates the containers.
        algorithm: what workers send, and how the parameter server applies it.
        model: the model to train.
        dataset: the training and test data, and the partition among the workers.
        ps: the parameter server.
        workers: the devices.
        streams: delivery of samples during training; by default all are available from the start.
        programs: commands that run as their own nodes, by name of the node.
        network: kernel features that the links use.
        faults: planned faults: what happens during training, when, and to which nodes.
        stop: when training ends.
        evaluate: evaluation of the model during training.
        checkpoint: how often the state of training is saved; never by default.
        codec: emulated time of encoding and decoding in a simulation; none by default. A live run
            takes the real time.
        encoding: encoding of pushes: `raw`; `packed` sends the same numbers in fewer bytes,
            `packed16` rounds values to float16 first. Pulls are always raw.
        launch: `warm` forks workers from one process that has imported everything, `cold` starts
            each worker as a new process.
        time_scale: emulated seconds per real second.
        paced: whether think times, speeds and the parameter server's service time set the pace; if
            false, the run is as fast as the host, and a busy host does not make it invalid.
    """

    version: Annotated[Literal[1], BeforeValidator(version_one)] = 1
    name: Name
    seed: Seed = 0
    runtime: Runtime = Native(name="native")
    algorithm: Algorithm
    model: Model
    dataset: Dataset
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
        evaluate = self.evaluate.model_copy(update={"every": every})
        return self.model_copy(update={"evaluate": evaluate})

    @property
    def simulated(self) -> bool:
        """Whether it runs on a virtual clock instead of in containers."""
        return isinstance(self.runtime, Simulated)

    @property
    def is_paced(self) -> bool:
        """Whether settings, not only the host, determine the pace."""
        classes = self.workers.classes.values()
        paces = [self.workers.think, self.ps.service, *(one.speed or one.think for one in classes)]
        return self.paced and any(pace is not None for pace in paces)
