"""The models that a scenario can name.

Here: one file per model, its forward and backward pass on a flat parameter vector, evaluation, and
saved models. Not here: the training loop (``algorithms.frame``), gradients as messages
(``payloads``). The union below lists the models; README.md says how to add one.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from testbed.models.adacomp_cnn import AdaCompCnn
from testbed.models.adsp_cnn import AdspCnn
from testbed.models.base import BoundModel, Evaluation, ImageShape, ModelConfig, Network
from testbed.models.char_lstm import CharLstm
from testbed.models.custom import CustomModel
from testbed.models.digits_cnn import DigitsCnn
from testbed.models.gpt import Gpt
from testbed.models.linear_svm import LinearSvm
from testbed.models.lstm import Lstm
from testbed.models.mlp import Mlp
from testbed.models.resnet import ResNet
from testbed.models.vgg_s import VggS
from testbed.values.family import Named

Model = Annotated[
    Annotated[
        AdaCompCnn
        | AdspCnn
        | CharLstm
        | CustomModel
        | DigitsCnn
        | Gpt
        | LinearSvm
        | Lstm
        | Mlp
        | ResNet
        | VggS,
        Field(discriminator="name"),
    ],
    Named(),
]

__all__ = [
    "AdaCompCnn",
    "AdspCnn",
    "BoundModel",
    "CharLstm",
    "CustomModel",
    "DigitsCnn",
    "Evaluation",
    "Gpt",
    "ImageShape",
    "LinearSvm",
    "Lstm",
    "Mlp",
    "Model",
    "ModelConfig",
    "Network",
    "ResNet",
    "VggS",
]
