"""The models that a scenario can name.

Here: one file per model, its forward and backward pass on a flat parameter vector, evaluation, and
saved models. Not here: the training loop (``algorithms.frame``), gradients as messages
(``payloads``). The union below lists the models; README.md says how to add one.
"""

from __future__ import annotations

from typing import Annotated

from testbed.models.adacomp_cnn import AdaCompCnn as AdaCompCnn
from testbed.models.adsp_cnn import AdspCnn as AdspCnn
from testbed.models.base import BoundModel as BoundModel
from testbed.models.base import Evaluation as Evaluation
from testbed.models.base import ImageShape as ImageShape
from testbed.models.base import ModelConfig as ModelConfig
from testbed.models.base import Network as Network
from testbed.models.char_lstm import CharLstm as CharLstm
from testbed.models.custom import CustomModel as CustomModel
from testbed.models.digits_cnn import DigitsCnn as DigitsCnn
from testbed.models.gpt import Gpt as Gpt
from testbed.models.linear_svm import LinearSvm as LinearSvm
from testbed.models.lstm import Lstm as Lstm
from testbed.models.mlp import Mlp as Mlp
from testbed.models.resnet import ResNet as ResNet
from testbed.models.vgg_s import VggS as VggS
from testbed.values.family import Named

Model = Annotated[
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
    Named(),
]
