"""Local optimizers: what a worker makes of its gradients.

Here: one optimizer per file, computed as in ``torch.optim``, in float32. Not here: how often a
worker pushes (``parts``), what a server does with the pushes (the algorithms). A new optimizer is a
file here and an entry in ``AnyOptimizer``.
"""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypeAliasType

from testbed.algorithms.optimizers.adagrad import Adagrad as Adagrad
from testbed.algorithms.optimizers.adam import Adam as Adam
from testbed.algorithms.optimizers.adam import AdamW as AdamW
from testbed.algorithms.optimizers.base import OptimizerState as OptimizerState
from testbed.algorithms.optimizers.rmsprop import RmsProp as RmsProp
from testbed.algorithms.optimizers.sgd import Sgd as Sgd
from testbed.values.family import Named

AnyOptimizer = Sgd | Adam | AdamW | Adagrad | RmsProp
Optimizer = TypeAliasType("Optimizer", Annotated[AnyOptimizer, Named()])
