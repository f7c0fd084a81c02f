"""Networks from the user's ``torch.nn.Module``, with checks that report all its errors."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from testbed.errors import TestbedError, UserCodeError, UserFileError
from testbed.models.base import AT_WORKERS, BoundModel, Buffers, Images, ImageShape, Loss, Targets
from testbed.models.layers import CrossEntropy, SquaredError
from testbed.models.modules import (
    BATCH_NORM,
    STRUCTURE_SEED,
    BoundModule,
    ModuleNetwork,
    layout_of,
    mean_cross_entropy,
    without_running_statistics,
)
from testbed.models.scores import counted
from testbed.payloads import Vector
from testbed.payloads.layout import Layout
from testbed.values.samples import inputs_of
from testbed.values.user_code import (
    OwnDescriptor,
    UserCode,
    closed_descriptors,
    one_process,
    raised_by_signal,
    user_code_location,
)

OwnLoss = Callable[[Tensor, Tensor], Any]
"""Maps outputs and targets of a batch to its mean loss."""


class OwnModuleNetwork(ModuleNetwork):
    """A network from the user's class, with the layout of its parameters.

    Raises:
        ScenarioError: the class is not a Module, or cannot be trained here; the error says why.
    """

    def __init__(
        self,
        code: UserCode,
        image_shape: ImageShape,
        classes: int,
        *,
        options: Mapping[str, Any],
        buffers: Buffers = "dropped",
    ) -> None:
        """Build the network; ``buffers`` says what becomes of those that training changes."""
        self._code = code
        self._kept = buffers
        self._options = options
        self._image_shape = image_shape
        self._classes = classes
        self._class = code.load("a subclass of torch.nn.Module")
        is_class = isinstance(self._class, type) and issubclass(self._class, nn.Module)
        if not is_class and not isinstance(self._class, FunctionType):
            raise code.error(f"{code.name}, {_kind(self._class)}", "a subclass of torch.nn.Module")
        super().__init__(self._tried)

    def bind(self, parameters: Vector, *, device: str | None = None) -> BoundModel:
        module, layout = self._construct(STRUCTURE_SEED), self.worker_layout
        if parameters.size != layout.size:  # without what stays at the workers
            module, layout = without_running_statistics(module), self.layout
        own = _BoundOwnModule(module, self._code, self._classes, layout, parameters, device)
        own.tokens = self.tokens
        return own

    def loss(self, *, device: str | None = None) -> Loss:
        raise NotImplementedError("a model of your own computes one gradient at a time")

    def _construct(self, seed: int) -> nn.Module:
        """Create an instance, and check that it has the layout of the first instance."""
        module = super()._construct(seed)
        found = self._layouts(module)
        if hasattr(self, "layout") and found != (self.layout, self.local):
            expected = f"the same parameters in every process, {_counts(self.layout)}"
            raise self._code.changed(f"{self._code.name} with {_counts(found[0])}", expected)
        return module

    def _layouts(self, module: nn.Module) -> tuple[Layout, Layout]:
        """Split off what stays at the workers: statistics, and with ``fedbn`` all of the layers."""
        whole = layout_of(module, self._buffers)
        if self._kept not in AT_WORKERS:
            return whole, self.local
        local = set(self._buffers)
        if self._kept == "fedbn":
            local |= parameters_of_batch_norm(module)
        return whole.part(set(whole.names) - local), whole.part(local)

    def _tried(self) -> nn.Module:
        """Create an instance, and test it on two blank images (which initializes lazy layers)."""
        name = self._code.name
        given = "".join(f", {key}={value!r}" for key, value in self._options.items())
        named = "".join(f", {key}=..." for key in self._options)
        made = self._code.call(
            lambda: self._class(self._image_shape, self._classes, **self._options),
            doing=f"{name}({self._image_shape}, {self._classes}{given})",
            expected=f"a class that can be called as {name}(image_shape, classes{named})",
        )
        if not isinstance(made, nn.Module):
            raise self._code.error(f"{name} returned {_kind(made)}", "a torch.nn.Module")
        module = self._prepared(made)
        fresh = {key: buffer.clone() for key, buffer in module.named_buffers()}
        self._check_types(module)
        blank = self._blank_images()
        shapes = " or ".join(str(shape) for shape in self._shapes(2))
        what = "scores" if self._classes else "predictions"
        expected = f"{what}, a float32 tensor of shape {shapes}, from two images"
        doing = f"{name} on images of shape {tuple(blank.shape)}"
        out = self._code.call(lambda: scores_of(module(blank)), doing=doing, expected=expected)
        self._check_outputs(out, expected)
        self.tokens = out.shape[1] if out.ndim == 3 else 0
        if own := _own_loss(module):
            self._check_loss(own, out)
        if not hasattr(self, "layout"):  # it is the first instance
            self._check_buffers(module, blank)
            self.least_samples = self._least_samples(module, blank[:1])
        if self._kept != "dropped":
            for key in self._buffers:
                owner, _, own_name = key.rpartition(".")
                module.get_submodule(owner)._buffers[own_name] = fresh.get(
                    key, module.get_buffer(key)
                )
        return module

    def _prepared(self, module: nn.Module) -> nn.Module:
        """Drop running statistics, or the count of batches, which only a mean of all needs."""
        if self._kept == "dropped":
            return without_running_statistics(module)
        for key, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats:
                if part.momentum is None:
                    found = f"{self._code.name}'s {key} with momentum=None, which counts batches"
                    raise self._code.error(
                        found, "a momentum, such as 0.1, if buffers are not dropped"
                    )
                part.num_batches_tracked = None
        return module

    def _check_buffers(self, module: nn.Module, blank: Tensor) -> None:
        """Check that training changes no buffers, which each process would have for itself.

        This checks the second forward pass: layers may create buffers in the first.
        """
        before = {key: (buffer, buffer._version) for key, buffer in module.named_buffers()}
        doing = f"{self._code.name} on images a second time"
        expected = "the same as the first time"
        self._code.call(lambda: self._train(module, blank), doing=doing, expected=expected)
        statistics = running_statistics(module) if self._kept != "dropped" else set()
        if self._kept in AT_WORKERS and not statistics:
            found = f"{self._code.name} without normalisation layers that have statistics"
            expected = f"such a layer, or no `buffers: {self._kept}`"
            raise self._code.error(found, expected)
        changed = []
        for key, buffer in module.named_buffers():
            old, version = before.get(key, (None, 0))
            if key in statistics or buffer is not old or buffer._version != version:
                if self._kept == "averaged" or key in statistics:
                    changed.append(key)
                    self._check_buffer(key, old, buffer)
                    continue
                expected = (
                    "buffers that no forward pass changes: nodes exchange parameters only. Compute "
                    "it in every forward pass from the batch or from parameters, as nn.BatchNorm "
                    "layers do here"
                )
                found = f"{self._code.name}, which changes its buffer {key} during training"
                raise self._code.error(found, expected)
        self._buffers = tuple(changed)

    def _check_buffer(self, key: str, old: Tensor | None, new: Tensor) -> None:
        """Check that a buffer that training changes can be a part of the flat vector."""
        if new.dtype != torch.float32:
            found = f"{self._code.name}, which changes its buffer {key}, {new.dtype}, in training"
            raise self._code.error(found, "buffers of torch.float32, which can be averaged")
        if old is None or old.shape != new.shape:
            found = f"{self._code.name}, which changes the shape of its buffer {key} in training"
            raise self._code.error(found, "buffers that keep their shape, which can be averaged")

    def _least_samples(self, module: nn.Module, one: Tensor) -> int:
        """Return 2 if the module cannot train on one image, as with nn.BatchNorm1d; else 1."""
        try:
            out = self._code.call(lambda: self._train(module, one), doing="", expected="")
        except UserFileError:
            return 2
        shape = _shape(1, self._classes, self.tokens)
        return 1 if isinstance(out, Tensor) and out.shape == shape else 2

    def _train(self, module: nn.Module, images: Tensor) -> Any:
        """Return the outputs for blank images, after computing their loss."""
        outputs = scores_of(module(images))
        if own := _own_loss(module):
            own(outputs, self._blank_targets(len(images)))
        return outputs

    def _blank_images(self) -> Tensor:
        kind = torch.int64 if inputs_of(self._image_shape) == "tokens" else torch.float32
        return torch.zeros(2, *self._image_shape, dtype=kind)

    def _blank_targets(self, count: int = 2) -> Tensor:
        shape = (count, self.tokens) if self.tokens else (count,)
        return torch.zeros(shape, dtype=torch.int64 if self._classes else torch.float32)

    def _shapes(self, count: int) -> list[tuple[int, ...]]:
        """Return the possible shapes of outputs: of tokens only if there is more than one input."""
        shapes = [_shape(count, self._classes)]
        if self._classes and inputs_of(self._image_shape) == "tokens":
            shapes.append(_shape(count, self._classes, self._image_shape[0]))
        return shapes

    def _check_loss(self, own: OwnLoss, outputs: Tensor) -> None:
        """Check that the module's own loss is a number with a gradient."""
        name = self._code.name
        targets = self._blank_targets()
        doing = f"{name}.loss on outputs of shape {tuple(outputs.shape)}"
        expected = "the mean loss, a tensor with a single number, that depends on the outputs"
        loss = self._code.call(lambda: own(outputs, targets), doing=doing, expected=expected)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            found = f"{tuple(loss.shape)}" if isinstance(loss, Tensor) else _kind(loss)
            raise self._code.error(f"{name}.loss returned {found}", expected)

    def _check_outputs(self, out: object, expected: str) -> None:
        name = self._code.name
        if not isinstance(out, Tensor):
            raise self._code.error(f"{name}'s output is {_kind(out)}", expected)
        if tuple(out.shape) not in self._shapes(2) or out.dtype != torch.float32:
            found = f"{name}'s output has shape {tuple(out.shape)} and is {out.dtype}"
            raise self._code.error(found, expected)
        if not out.requires_grad:
            found = f"{name}'s output does not depend on any trainable parameter"
            raise self._code.error(found, "an output that depends on at least one nn.Parameter")

    def _check_types(self, module: nn.Module) -> None:
        for key, parameter in module.named_parameters():
            if parameter.dtype != torch.float32:
                found = f"{self._code.name}'s parameter {key} is {parameter.dtype}"
                raise self._code.error(found, "parameters of torch.float32")
        seen: dict[int, str] = {}
        for key, parameter in module.named_parameters():
            if isinstance(parameter, nn.UninitializedParameter):
                continue
            other = seen.setdefault(parameter.untyped_storage().data_ptr(), key)
            if other != key and parameter.numel():
                found = f"{self._code.name}'s parameters {other} and {key}, which share memory"
                expected = "tied parameters that are one nn.Parameter: a.weight = b.weight"
                raise self._code.error(found, expected)


class _BoundOwnModule(BoundModule):
    tokens = 0

    def __init__(
        self,
        module: nn.Module,
        code: UserCode,
        classes: int,
        layout: Layout,
        parameters: Vector,
        device: str | None,
    ) -> None:
        super().__init__(module, layout, parameters, device)
        self.mixes = True  # unknown, so assume it
        self._code = code
        self._descriptor = OwnDescriptor()
        self._classes = classes

    def loss_and_gradient(self, images: Images, targets: Targets) -> tuple[float, Vector]:
        with self._faults():
            return super().loss_and_gradient(images, targets)

    def scores(self, images: Images) -> NDArray[np.float32]:
        with self._faults():
            return super().scores(images)

    @torch.no_grad()
    def total_loss(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        if _own_loss(self._module) is None:
            objective = CrossEntropy() if self._classes else SquaredError()
            return objective.total(*counted(outputs, targets))
        self._module.eval()
        with self._faults():
            given = self._tensor(outputs.astype(np.float32))
            count = len(counted(outputs, targets)[1])
            return self._loss(given, self._tensor(targets)).item() * count

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Report torch errors inside the context as failures of the user's code.

        The same applies to damage that the code does to this process.
        """
        code = self._code
        try:
            with one_process():
                yield
        except TestbedError:
            raise
        except BaseException as error:
            if raised_by_signal(error) or user_code_location(
                traceback.walk_tb(error.__traceback__)
            ):
                raise
            trace = "".join(traceback.format_exception(error))
            message = f"{code.path.name}:{code.line()}: {code.name} cannot be trained: {error}"
            raise UserCodeError(message, trace=trace) from error
        if not self._descriptor.is_open():
            raise closed_descriptors(code.path.name)

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch: the module's own, or the default for its targets."""
        if own := _own_loss(self._module):
            return cast(Tensor, own(outputs, targets))
        usual = mean_cross_entropy if self._classes else nn.functional.mse_loss
        return usual(outputs, targets)

    def _scores(self, images: Images) -> Tensor:
        """Return the module's output, if it is still valid.

        Raises:
            UserCodeError: it is not a tensor, or has another shape or type.
        """
        out = scores_of(self._module(self._inputs(images)))
        shape = _shape(len(images), self._classes, self.tokens)
        if not isinstance(out, Tensor) or out.shape != shape or out.dtype != torch.float32:
            found = f"{tuple(out.shape)}, {out.dtype}" if isinstance(out, Tensor) else _kind(out)
            place = f"{self._code.path.name}:{self._code.line()}: {self._code.name}"
            raise UserCodeError(f"{place} returned {found}, expected {shape}, torch.float32.")
        return out


def _shape(count: int, classes: int, tokens: int = 0) -> tuple[int, ...]:
    """Return the shape of the outputs for ``count`` images: scores, or else predictions."""
    if tokens:
        return (count, tokens, classes)
    return (count, classes) if classes else (count,)


def scores_of(outputs: Any) -> Any:
    """Return the scores of a module that returns an object with more, such as transformers'."""
    return getattr(outputs, "logits", outputs)


def running_statistics(module: nn.Module) -> set[str]:
    """Return the names of the buffers of normalisation layers that follow the batches."""
    return {
        f"{key}.{name}" if key else name
        for key, part in module.named_modules()
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats
        for name in ("running_mean", "running_var")
    }


def parameters_of_batch_norm(module: nn.Module) -> set[str]:
    """Return the names of the scales and shifts of batch normalisation layers."""
    return {
        f"{key}.{name}" if key else name
        for key, part in module.named_modules()
        if isinstance(part, BATCH_NORM)
        for name, _ in part.named_parameters()
    }


def _own_loss(module: nn.Module) -> OwnLoss | None:
    """Return the ``loss`` method of the user's module, if it has one."""
    own = getattr(module, "loss", None)
    return own if callable(own) else None


def _counts(layout: Layout) -> str:
    return f"{layout.size:,} parameters in {len(layout.names):,} tensors"


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
