"""A character-level language model with long short-term memory, as LEAF's for Shakespeare.

    embedding -> 8
    long short-term memory, two layers -> 256 each
    dense -> tokens

S. Caldas et al.: LEAF: a benchmark for federated settings, 2018, arXiv:1812.01097; sizes as there.
LEAF predicts the character after each sample; here each of the characters is predicted from those
before, unless the data set counts the last one only (``predict: last`` of ``text``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from testbed.models.base import ImageShape, ModelConfig, Network, dense

Units = Annotated[int, Field(ge=1, le=4096, strict=True)]


class CharLstm(ModelConfig):
    """Long short-term memory that predicts the next character.

    Attributes:
        embedding: size of the vector of each character.
        units: size of the hidden state of each layer.
        layers: number of layers of memory.
    """

    reads = "tokens"
    predicts = "tokens"

    name: Literal["char-lstm"]
    embedding: Units = 8
    units: Units = 256
    layers: Annotated[int, Field(ge=1, le=16, strict=True)] = 2

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from torch import Tensor, nn

        from testbed.models.modules import ModuleNetwork

        config = self

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(classes, config.embedding)
                self.memory = nn.LSTM(
                    config.embedding, config.units, config.layers, batch_first=True
                )
                self.score = nn.Linear(config.units, classes)

            def forward(self, tokens: Tensor) -> Tensor:
                outputs, _ = self.memory(self.embedding(tokens))
                scores: Tensor = self.score(outputs)
                return scores

        return ModuleNetwork(Net, tokens=image_shape[0])

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        inputs = [self.embedding] + [self.units] * (self.layers - 1)
        memory = sum(4 * self.units * (one + self.units + 2) for one in inputs)
        return classes * self.embedding + memory + dense(self.units, classes)
