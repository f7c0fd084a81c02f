"""A small transformer that predicts the next token from those before: a decoder, as GPT-2.

    embedding of the token + embedding of its position -> width
    layers times: + attention(norm), + dense(GELU(dense(norm) -> 4 width)) -> width
    norm, then scores by the transposed embedding of tokens

A. Radford et al.: Language models are unsupervised multitask learners, 2019. As there, weights are
drawn from N(0, 0.02), those that lead back into the sum of the layers from N(0, 0.02 / sqrt(2
layers)), and biases start at 0; the embedding of tokens and the output share their weights. There
is no dropout. A norm is that of a layer, which does not depend on the batch.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from testbed.errors import InvalidValue
from testbed.models.base import ImageShape, ModelConfig, Network, dense

if TYPE_CHECKING:
    from torch import Tensor, nn

DEVIATION = 0.02


class Gpt(ModelConfig):
    """Transformer that predicts the next token.

    Attributes:
        layers: number of layers.
        heads: number of heads of each attention; divides ``width``.
        width: size of the vector of each token.
    """

    reads = "tokens"
    predicts = "tokens"

    name: Literal["gpt"]
    layers: Annotated[int, Field(ge=1, le=96, strict=True)] = 2
    heads: Annotated[int, Field(ge=1, le=128, strict=True)] = 4
    width: Annotated[int, Field(ge=1, le=16_384, strict=True)] = 64

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            expected = f"a multiple of heads, {self.heads}"
            raise InvalidValue(f"a width of {self.width}", expected)
        return self

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.modules import ModuleNetwork

        length = image_shape[0]
        return ModuleNetwork(lambda: _decoder(self, length, classes), tokens=length)

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        width = self.width
        attention = dense(width, 3 * width) + dense(width, width)
        layer = attention + dense(width, 4 * width, width) + 2 * 2 * width
        return (classes + image_shape[0]) * width + self.layers * layer + 2 * width


def _decoder(config: Gpt, length: int, tokens: int) -> nn.Module:
    """Create the network for rows of ``length`` tokens, each below ``tokens``."""
    import torch
    from torch import nn

    width, heads = config.width, config.heads

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.gather = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.gather(self._attention(self.attend(self.norm(x))))
            wide = nn.functional.gelu(self.widen(self.second_norm(x)))
            result: Tensor = x + self.narrow(wide)
            return result

        def _attention(self, projected: Tensor) -> Tensor:
            """Return the mean of the values, weighted by the keys that fit each query."""
            shape = (*projected.shape[:2], heads, width // heads)
            query, key, value = (one.view(shape).transpose(1, 2) for one in projected.chunk(3, 2))
            fits = query @ key.transpose(2, 3) / sqrt(width // heads)
            later = torch.ones(fits.shape[-2:], dtype=torch.bool, device=fits.device).triu(1)
            weights = fits.masked_fill(later, float("-inf")).softmax(-1)
            return (weights @ value).transpose(1, 2).flatten(2)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(tokens, width), nn.Embedding(length, width)
            self.layers = nn.Sequential(*(Layer() for _ in range(config.layers)))
            self.norm = nn.LayerNorm(width)
            self.score = nn.Linear(width, tokens, bias=False)
            self.apply(_initialise)
            for name, weight in self.named_parameters():
                if name.endswith(("gather.weight", "narrow.weight")):
                    nn.init.normal_(weight, std=DEVIATION / sqrt(2 * config.layers))
            self.score.weight = self.token.weight

        def forward(self, given: Tensor) -> Tensor:
            places = torch.arange(given.shape[1], device=given.device)
            x = self.layers(self.token(given) + self.position(places))
            scores: Tensor = self.score(self.norm(x))
            return scores

    return Net()


def _initialise(module: Any) -> None:
    from torch import nn

    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=DEVIATION)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
