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
from testbed.errors import Unfit
from testbed.faults import Fault
from testbed.models import Model
from testbed.payloads.encodings import Encoding
from testbed.runtimes import Native, Runtime, Simulated
from testbed.scenario.direction import Link, Recording
from testbed.scenario.durations import LEAST_INTERVAL, Codec, RandomDuration, Speed, StepTime
from testbed.scenario.streams import StreamSettings
from testbed.topology import End, LaunchMode, Missing, Offload
from testbed.values.cpu_sets import CpuSet
from testbed.values.fields import (
    Count,
    Cpus,
    Folder,
    Gpus,
    Key,
    Name,
    NodeName,
    Part,
    PositiveDuration,
    PositiveNumber,
    PositiveSize,
    Seed,
    Share,
    Word,
    not_auto,
    some,
    whole,
)
from testbed.values.units import Duration


class PsSettings(Part):
    """The parameter server; without limits it has ten workers' CPU weight.

    Attributes:
        link: its link, which all workers share.
        service: emulated time it is occupied by a worker's pull or push, one after the other in
            the order they come; the reply goes out after that. None for as fast as the host is.
        dead_after: a worker of which nothing came for so long, in emulated time, though it has its
            reply or has crashed, is removed as if it had left. None for never.
        cpu: how much CPU it may use, in CPUs.
        cpuset: which CPUs of the host it may use.
        memory: memory it may use; by default half of the host's.
        scratch: what fits into its /tmp, and as much again into its /dev/shm; both count as memory
            that it uses. 16MiB by default.
    """

    link: Link = Link()
    service: PositiveDuration | None = None
    dead_after: PositiveDuration | None = None
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None
    scratch: PositiveSize | None = None


class DeviceClass(Part):
    """A class of devices.

    Attributes:
        share: share of the workers in this class, of those that are not in classes with a `count`;
            the shares of all classes add up to 1. By default 1.
        count: how many workers are in this class, instead of a share.
        speed: emulated time of one training step, its law, or what it takes with any batch and for
            each sample; a shorter real one waits.
        think: a wait between computing and pushing, instead of that of all workers.
        link: link of each of its workers.
        cpu: how much CPU each may use, in CPUs.
        cpuset: which CPUs of the host they may use.
        memory: memory each may use; by default half of the host's.
        scratch: what fits into the /tmp of each, and as much again into its /dev/shm; both count as
            memory that it uses. 16MiB by default.
        gpus: GPUs that each of them sees; needs Docker with an nvidia runtime.
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
            raise Unfit(f"a share of {self.share:g} and a count of {self.count}", "one of the two")
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


class Workers(Part):
    """The workers.

    Attributes:
        count: how many.
        batch_size: samples of a mini-batch.
        think: a wait between computing and pushing, of classes without their own.
        classes: device classes by name; workers are dealt to them in this order.
        availability: the recording that says when each worker is there; always by default.
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
            raise Unfit(
                f"classes whose counts add up to {counted:,}", f"`count`, which is {self.count:,}"
            )
        if shares and counted >= self.count:
            found = f"classes whose counts add up to {counted:,} beside classes with a share"
            raise Unfit(found, f"less than `count`, which is {self.count:,}")
        if shares and abs(sum(shares.values()) - 1) > SHARES_ROUNDING:
            total = sum(shares.values())
            raise Unfit(f"classes whose shares add up to {total:g}", "shares that add up to 1")
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

    def dealt(self) -> tuple[str, ...]:
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


class NetworkSettings(Part):
    """What the links need of the kernel.

    Attributes:
        missing: ``fail`` or ``warn`` where the kernel lacks netem and a link needs it.
        offload: segmentation offloads of the links; ``auto`` turns them off where packets get lost.
    """

    missing: Missing = "fail"
    offload: Offload = "auto"


class Stop(Part):
    """When training ends: whichever comes first. At least one is needed.

    Attributes:
        updates: so many updates are in the model; more if some are applied together.
        steps: so many training steps of all workers are in it.
        time: so many emulated seconds have passed.
        accuracy: an evaluation during training found this share of the test images right.
        loss: an evaluation during training found a loss of at most that.
    """

    updates: Count | None = None
    steps: Count | None = None
    time: PositiveDuration | None = None
    accuracy: Share | None = None
    loss: PositiveNumber | None = None

    @model_validator(mode="after")
    def _something(self) -> Stop:
        if all(rule is None for _, rule in self):
            raise Unfit("nothing that would end the run", "updates, steps, time, accuracy or loss")
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


class ProgramSettings(Part):
    """A command that runs as a node of its own, confined as all nodes are.

    Attributes:
        command: the program and its arguments, without a shell; `{ps}`, `{w3}` or the name of
            another program in braces stands for that node's address.
        link: its link.
        cpu: how much CPU it may use, in CPUs.
        cpuset: which CPUs of the host it may use.
        memory: memory it may use; by default half of the host's.
        scratch: what fits into its /tmp, and as much again into its /dev/shm; both count as memory
            that it uses. 16MiB by default.
        folders: folders of the host that it sees at their own paths, read-only, though they are
            hidden from nodes or missing in an image.
        end: what it means when it ends before the training has: `fatal`, the run fails; `noticed`,
            that is told, and the run goes on; `expected`, as `noticed`, and an exit status of 0 is
            not worth telling.
    """

    command: Annotated[tuple[Word, ...], Field(strict=False), AfterValidator(some)]
    link: Link = Link()
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None
    scratch: PositiveSize | None = None
    folders: Annotated[tuple[Folder, ...], Field(strict=False)] = ()
    end: End = "fatal"


class Evaluate(Part):
    """The evaluator. At the end of the run it evaluates all test images.

    Attributes:
        every: so many updates, or so long in emulated time, lie between two evaluations. By default
            a twentieth of what `stop` says of updates, steps or time, and at most 1,000 updates.
        images: how many fixed test images an evaluation during training uses.
        timeout: how long one evaluation may take, in real time; a run whose evaluation takes longer
            ends with an error.
    """

    every: Count | PositiveDuration | None = None
    images: Count = 2000
    timeout: PositiveDuration = Duration(600)


class Checkpoint(Part):
    """Saves all that the training is at, so that it can go on after the parameter server's end.

    Attributes:
        every: so many updates, or so long in emulated time, lie between two checkpoints.
    """

    every: Count | PositiveDuration


class Scenario(Part):
    """One experiment.

    Attributes:
        version: of this form of scenarios.
        name: prefix of its runs' names.
        seed: from which every random draw derives.
        runtime: what makes the containers.
        algorithm: what workers send and what the parameter server does with it.
        model: what is trained.
        dataset: what it is trained on, and how that is dealt to the workers.
        ps: the parameter server.
        workers: the devices.
        streams: how samples come to them; none: all are there from the beginning.
        programs: commands that run beside them as nodes of their own, by the node's name.
        network: what the links need of the kernel.
        faults: what is to go wrong during the training, when, and with whom.
        stop: when training ends.
        evaluate: how often the model is evaluated during training.
        checkpoint: how often all that the training is at is saved; never by default.
        codec: the time that coding takes, in a simulation; none by default. A live run's takes what
            it takes.
        encoding: of the pushes: ``raw``; ``packed`` has the same numbers in fewer bytes,
            ``packed16`` rounds values to float16 before. Pulls stay raw.
        launch: ``warm`` forks workers from one process that has imported everything, ``cold``
            starts each as a process of its own.
        time_scale: emulated seconds per real second.
        paced: whether think times, speeds and the parameter server's service say how fast it goes;
            false leaves it to the host, and a busy one does not make the run invalid.
    """

    version: Annotated[Literal[1], BeforeValidator(whole)] = 1
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
