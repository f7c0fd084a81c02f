"""Residual networks as torch modules, as described in ``resnet.py``."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (16, 32, 64)
"""Channels of the three stages."""


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut that adds the input to their output.

    At the start of a stage, the shortcut skips every second pixel to halve height and width, and
    fills missing channels with 0: it has no parameters.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.stride, self.added = stride, outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map shape (b, inputs, h, w) to (b, outputs, h', w')."""
        out = self.norm1(self.conv1(x)).relu()
        out = self.norm2(self.conv2(out))
        before = self.added // 2
        channels = (0, 0, 0, 0, before, self.added - before)
        shortcut = functional.pad(x[:, :, :: self.stride, :: self.stride], channels)
        return cast(Tensor, out.add_(shortcut).relu_())


class ResidualNetwork(nn.Module):
    """A convolution, three stages of blocks, the mean over the pixels, a dense layer."""

    def __init__(self, channels: int, classes: int, *, blocks: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        stages, inputs = [], WIDTHS[0]
        for outputs in WIDTHS:
            row = [Block(inputs, outputs, stride=1 if outputs == inputs else 2)]
            row += [Block(outputs, outputs, stride=1) for _ in range(blocks - 1)]
            stages.append(nn.Sequential(*row))
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.dense = nn.Linear(WIDTHS[-1], classes)
        start_as_he(self)

    def forward(self, images: Tensor) -> Tensor:
        """Map shape (b, channels, h, w) to (b, classes)."""
        x = self.stages(self.norm(self.conv(images)).relu_())
        return cast(Tensor, self.dense(x.mean((2, 3))))


def start_as_he(module: nn.Module) -> None:
    """Initialise weights from normal laws of variance 2 / inputs of a unit, and biases to 0.

    He et al., ICCV 2015, arXiv:1502.01852. Normalisation layers keep weights of 1 and biases of 0.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
