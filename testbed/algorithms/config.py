"""The options of an algorithm, and what the frame must know of it; see ``base``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

from numpy.random import Generator

from testbed.errors import AlgorithmError
from testbed.payloads import Payload, Vector
from testbed.payloads.layout import Layout
from testbed.values.fields import StrictModel
from testbed.values.user_code import method_location

Halves: TypeAlias = tuple[type[Any], type[Any]]
"""A subclass of WorkerHalf and one of ServerHalf, which ``base`` defines."""


class AlgorithmConfig(StrictModel, ABC):
    """Base of every algorithm's options in a scenario; ``name`` selects the algorithm.

    Attributes:
        OBEYS: fields of Orders that its worker half enforces. Other fields may not be ordered.
        SENDS_ORDERS: whether its server half sends orders between replies.
        SENDS_MESSAGES: whether its worker half sends updates without a step.
        THINKS: whether its experiments include a wait between computing and pushing; if not, a
            scenario may not configure a think time.
        PACKS: whether its pushes can be packed; if not, the scenario's encoding must be raw.
        SENDS_KEYS: whether it sends Keyed payloads and their core keys are sent only once.
        WAKES: whether its worker half may be woken during steps.
        PAYLOADS: kinds of payload of its own, each with a NUMBER from 64.
        TAKES_STREAMS: whether its workers may train on samples that arrive during the run.
        WORKERS_EVALUATE: whether its workers may evaluate the models that they pull: it has rounds,
            and a reply is the whole model.
        AVERAGES_BUFFERS: whether it averages models, and its workers subtract the gradient of what
            is ``untrained`` in the layout as it is; or workers keep these, and a part of the model.
    """

    OBEYS: ClassVar[frozenset[str]] = frozenset({"batch_size"})
    SENDS_ORDERS: ClassVar[bool] = False
    SENDS_MESSAGES: ClassVar[bool] = False
    THINKS: ClassVar[bool] = True
    PACKS: ClassVar[bool] = True
    SENDS_KEYS: ClassVar[bool] = False
    WAKES: ClassVar[bool] = False
    PAYLOADS: ClassVar[tuple[type[Payload], ...]] = ()
    TAKES_STREAMS: ClassVar[bool] = False
    WORKERS_EVALUATE: ClassVar[bool] = False
    AVERAGES_BUFFERS: ClassVar[bool] = False

    @abstractmethod
    def halves(self) -> Halves:
        """Return the classes of its worker half and its server half."""

    def most_shared(self, batch_size: int) -> int:
        """Return the maximum number of samples that a worker shares at once, for this batch size.

        A live message longer than these samples and the model need is refused.
        """
        return 0

    def most_noted(self, size: int) -> int:
        """Return the maximum bytes of text and arrays in a note, with a model of this size.

        Like ``most_shared``, it is added to the longest message; a note with more is an error.
        """
        return 0

    def takes_losses(self) -> bool:
        """Return whether its worker half uses ``loss``."""
        return False

    def loaded(self, folder: Path) -> Self:
        """Return the config with the user's own files in its options loaded from a run's folder.

        Raises:
            ScenarioError: such a file is wrong.
        """
        return self

    def worker(
        self,
        layout: Layout,
        workers: int,
        *,
        rng: Generator,
        index: int = 0,
        shared_seed: int = 0,
        parameters: Vector | None = None,
    ) -> Any:
        """Create the worker half of one of ``workers`` workers.

        It keeps its model in ``parameters``, which are zeros; by default in memory of its own.
        """
        given = {} if parameters is None else {"parameters": parameters}
        half = _created(self.halves()[0], self, layout, workers, rng, **given)
        half.index, half.shared_seed = index, shared_seed
        return half

    def server(self, layout: Layout, workers: int, *, parameters: Vector, rng: Generator) -> Any:
        """Create the server half; it takes ownership of ``parameters``, the initial model."""
        return _created(self.halves()[1], self, layout, workers, rng, parameters)


def _created(kind: Any, config: AlgorithmConfig, *given: Any, **named: Any) -> Any:
    """Create a half; the user's own may have replaced what its base does at its creation.

    Raises:
        AlgorithmError: it cannot be created, or lacks what its base gives it.
    """
    try:
        half = kind(config, *given, **named)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # in the code of the half
        raise _incomplete(kind, "__init__", str(error)) from error
    method = "__init__" if "__init__" in vars(kind) else "__post_init__"
    for name in ("config", "parameters"):
        if getattr(half, name, None) is None:
            found = f"{kind.__name__}.{method}() has not set `{name}`"
            raise _incomplete(kind, method, found)
    return half


def _incomplete(kind: type, method: str, found: str) -> AlgorithmError:
    return AlgorithmError(
        f"{method_location(kind, method)}: {found}.",
        hint="Define no __init__: create state of your own in __post_init__, and call "
        "super().__post_init__() there first.",
    )
