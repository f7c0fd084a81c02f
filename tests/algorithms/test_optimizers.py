"""Local optimizers, compared with those of torch; clipping and schedules, by hand."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from math import inf, isnan
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch.optim import adagrad, adam, adamw, rmsprop, sgd

from testbed.algorithms.optimizers import Optimizer, OptimizerState
from testbed.algorithms.parts.schedule import Clip, Constant, Cosine, StepDecay

OURS_AND_TORCHS: list[tuple[dict[str, Any], Any, dict[str, Any]]] = [
    ({"sgd": {}}, torch.optim.SGD, {}),
    ({"sgd": {"momentum": 0.9}}, torch.optim.SGD, {"momentum": 0.9}),
    (
        {"sgd": {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}},
        torch.optim.SGD,
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
    ),
    ({"adam": {}}, torch.optim.Adam, {}),
    (
        {"adam": {"beta1": 0.5, "beta2": 0.7, "epsilon": 0.01, "weight_decay": 0.2}},
        torch.optim.Adam,
        {"betas": (0.5, 0.7), "eps": 0.01, "weight_decay": 0.2},
    ),
    ({"adamw": {}}, torch.optim.AdamW, {}),
    ({"adamw": {"weight_decay": 0.3}}, torch.optim.AdamW, {"weight_decay": 0.3}),
    ({"adagrad": {"weight_decay": 0.1}}, torch.optim.Adagrad, {"weight_decay": 0.1}),
    ({"rmsprop": {}}, torch.optim.RMSprop, {}),
    (
        {"rmsprop": {"alpha": 0.9, "momentum": 0.5}},
        torch.optim.RMSprop,
        {"alpha": 0.9, "momentum": 0.5},
    ),
]


class Reference:
    """An optimizer of torch by its function: a first step of its class imports a compiler, in 5 s.

    Options that are not given have the defaults of the class.
    """

    def __init__(self, kind: Any, tensor: torch.Tensor, options: dict[str, Any]) -> None:
        given = {name: one.default for name, one in signature(kind).parameters.items()} | options
        self.tensor, self.given = tensor, given
        self.step_count, (self.first, self.second) = torch.tensor(0.0), self._zeros(2)
        self.momentum: list[torch.Tensor | None] = [None]
        self.carry_out = self._of(kind)

    def _zeros(self, count: int) -> list[torch.Tensor]:
        return [torch.zeros_like(self.tensor) for _ in range(count)]

    def _options(self, *names: str) -> dict[str, Any]:
        return {name: self.given[name] for name in names}

    def _of(self, kind: Any) -> Callable[[torch.Tensor, float], None]:
        given, count, moments = self.given, [self.step_count], [[self.first], [self.second]]
        own = {"foreach": False, "weight_decay": given["weight_decay"], "maximize": False}

        def of_sgd(gradient: torch.Tensor, lr: float) -> None:
            names = ("momentum", "dampening", "nesterov")
            sgd.sgd([self.tensor], [gradient], self.momentum, lr=lr, **self._options(*names), **own)

        def of_adam(gradient: torch.Tensor, lr: float) -> None:
            step = adamw.adamw if kind is torch.optim.AdamW else adam.adam
            beta1, beta2 = given["betas"]
            betas = {"beta1": beta1, "beta2": beta2, "eps": given["eps"], "amsgrad": False}
            step([self.tensor], [gradient], *moments, [], count, lr=lr, **betas, **own)

        def of_adagrad(gradient: torch.Tensor, lr: float) -> None:
            names = ("lr_decay", "eps")
            options = self._options(*names)
            adagrad.adagrad([self.tensor], [gradient], moments[0], count, lr=lr, **options, **own)

        def of_rmsprop(gradient: torch.Tensor, lr: float) -> None:
            options = self._options("alpha", "eps", "momentum", "centered")
            state = (moments[0], [], moments[1], count)
            rmsprop.rmsprop([self.tensor], [gradient], *state, lr=lr, **options, **own)

        functions = {
            torch.optim.SGD: of_sgd,
            torch.optim.Adam: of_adam,
            torch.optim.AdamW: of_adam,
            torch.optim.Adagrad: of_adagrad,
            torch.optim.RMSprop: of_rmsprop,
        }
        return functions[kind]


@pytest.mark.parametrize(("ours", "theirs", "options"), OURS_AND_TORCHS, ids=str)
def test_steps_are_those_of_torch(
    ours: dict[str, Any], theirs: Any, options: dict[str, Any]
) -> None:
    """Thirty steps on random gradients, with a learning rate that changes."""
    optimizer: Any = TypeAdapter(Optimizer).validate_python(ours)
    rng = np.random.default_rng(1)
    parameters = rng.normal(size=50).astype(np.float32)
    tensor = torch.from_numpy(parameters.copy())
    reference = Reference(theirs, tensor, options)
    state: OptimizerState = {}
    for number in range(30):
        rate = 0.1 / (1 + number)
        gradient = rng.normal(size=50).astype(np.float32)
        lent = gradient.copy()
        reference.carry_out(torch.from_numpy(gradient.copy()), rate)
        step = optimizer.step(state, lent, parameters, rate=rate)
        assert step.dtype == np.float32
        assert np.array_equal(lent, gradient)  # it is only borrowed
        parameters -= step
    assert np.allclose(parameters, tensor.numpy(), rtol=1e-5, atol=1e-6)


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(ValidationError, match="nesterov without momentum"):
        TypeAdapter(Optimizer).validate_python({"sgd": {"nesterov": True}})


def test_a_gradient_is_scaled_to_the_norm_or_cut_at_the_value() -> None:
    """(3, -4) has the norm 5."""
    gradient = np.array([3, -4], np.float32)
    assert Clip(norm=10.0).limit(gradient).tolist() == [3, -4]
    assert Clip(norm=2.5).limit(gradient).tolist() == [1.5, -2]
    assert Clip(value=3.5).limit(gradient).tolist() == [3, -3.5]
    assert gradient.tolist() == [3, -4]


@pytest.mark.parametrize("clip", [Clip(norm=1.0), Clip(value=1.0)])
def test_a_gradient_that_is_not_finite_stays_so(clip: Clip) -> None:
    assert clip.limit(np.array([inf, 1], np.float32)).tolist() == [inf, 1]
    assert isnan(clip.limit(np.array([np.nan, 1], np.float32))[0])


@pytest.mark.parametrize("limits", [{}, {"norm": 1.0, "value": 1.0}])
def test_a_clip_has_exactly_one_limit(limits: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="norm"):
        Clip(**limits)


def test_schedules_by_hand() -> None:
    """Steps at 10 and 20; half a cosine wave from 1 to 0.2 over 10; a rise from a tenth over 4."""
    steps = StepDecay(every=10.0, gamma=0.5)
    assert [steps.factor(p) for p in (0, 9.9, 10, 25)] == [1, 1, 0.5, 0.25]
    wave = Cosine(over=10.0, least=0.2)
    assert [wave.factor(p) for p in (0, 5, 10, 99)] == pytest.approx([1, 0.6, 0.2, 0.2])
    rise = Constant(warm_up=4.0)
    assert [rise.factor(p) for p in (0, 2, 4, 9)] == pytest.approx([0.1, 0.55, 1, 1])
    both = StepDecay(every=10.0, gamma=0.5, warm_up=4.0)
    assert [both.factor(p) for p in (4, 13.9, 14)] == [1, 1, 0.5]
