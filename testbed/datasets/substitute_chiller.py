"""SUBSTITUTE for the chiller tables of the ADSP paper (AAAI 2020): made by a formula.

The paper's SVM learns the coefficient of performance (COP) of chillers from tables that may not be
passed on. Here 2,000 days of five chillers are drawn. With T the temperature outdoors, seasonal and
noisy, and r the load over the capacity, which rises with T:

    COP = 6 - 0.05 (T - 20) - 0.1 age + 0.5 r - 0.4 r^2 + N(0, 0.15)
    power of the chiller = load / COP

A sample is a day of a chiller: temperature of the returning water, the chiller's power, flow, age,
load, temperature outdoors, power of the air side and of the pump, standardised by the training
samples; powers are read with 5 % of noise. The number to predict is the COP. Every fifth day is for
testing. Samples lie one chiller after the other, so that ``by_order`` gives each of five workers a
chiller of its own. Every draw is fixed: the data are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.datasets.base import DatasetConfig
from testbed.datasets.prepared import Images, Prepared, prepare_once
from testbed.seeds import stream

CHILLERS = 5
DAYS = 2000
TEST_EVERY = 5
FEATURES = 8
HEAT_OF_WATER = 4.19
"""kJ a kilogram and kelvin."""

Numbers = NDArray[np.float64]


class SubstituteChiller(DatasetConfig):
    """Made-up days of chillers and their performance, SUBSTITUTE for a paper's."""

    images = ((1, 1, FEATURES), 0)
    substitute = "substitute-chiller, a formula, stands for the ADSP paper's chiller tables"

    name: Literal["substitute-chiller"]

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """See the base class."""
        return prepare_once(cache / "prepared" / "substitute-chiller-1", _read)


def performance(outdoors: Numbers, age: Numbers, ratio: Numbers) -> Numbers:
    """The COP without noise: of degrees Celsius, years, and load over capacity."""
    return 6 - 0.05 * (outdoors - 20) - 0.1 * age + 0.5 * ratio - 0.4 * ratio**2


def days(rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Features (chillers, days, 8) and COP (chillers, days); kW, kg/s, years, degrees Celsius."""
    shape, day = (CHILLERS, DAYS), np.arange(DAYS)
    outdoors = 20 + 9 * np.sin(2 * np.pi * day / 365) + rng.normal(0, 2.5, shape)
    capacity = rng.uniform(400, 900, (CHILLERS, 1))
    age = rng.uniform(0, 8, (CHILLERS, 1)) + day / 365
    ratio = np.clip(0.2 + 0.018 * outdoors + rng.normal(0, 0.05, shape), 0.1, 1.0)
    load = capacity * ratio
    cop = performance(outdoors, age, ratio) + rng.normal(0, 0.15, shape)
    returning = 12 + 3 * (ratio - 0.5) + rng.normal(0, 0.3, shape)
    flow = load / (HEAT_OF_WATER * (returning - 7)) * (1 + rng.normal(0, 0.02, shape))
    powers = np.stack([load / cop, 0.08 * load, 0.02 * load + 0.3 * flow])
    chiller, air, pump = powers * (1 + rng.normal(0, 0.05, powers.shape))
    features = (returning, chiller, flow, age, load, outdoors, air, pump)
    return np.stack(np.broadcast_arrays(*features), axis=-1), cop


def _read() -> Prepared:
    features, cop = days(stream(0, "substitute-chiller"))
    tested = np.arange(DAYS) % TEST_EVERY == TEST_EVERY - 1
    trained = features[:, ~tested].reshape(-1, FEATURES)
    mean, deviation = trained.mean(0), trained.std(0)

    def half(chosen: NDArray[np.bool_]) -> tuple[Images, Images]:
        values = (features[:, chosen].reshape(-1, 1, 1, FEATURES) - mean) / deviation
        return values.astype(np.float32), cop[:, chosen].reshape(-1).astype(np.float32)

    source = {"name": "substitute-chiller", "of": "SUBSTITUTE: a formula"}
    return Prepared(*half(~tested), *half(tested), classes=0, source=source)
