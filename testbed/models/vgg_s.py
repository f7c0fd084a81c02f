"""A small VGG-style network: 815,018 parameters on CIFAR-10.

After K. Simonyan, A. Zisserman: Very deep convolutional networks for large-scale image recognition.
ICLR 2015, arXiv:1409.1556: 3x3 convolutions with ReLU, max pooling 2x2 after every second one, most
parameters in dense layers. It replaces VGG-16 and VGG-19 where these are too large to train:

    convolutions -> 32, 32, pooling, -> 64, 64, pooling, -> 128, 128, pooling
    dense -> 256, ReLU
    dense -> classes

Batch normalisation follows every convolution, unless ``batch_norm`` is false, as in 1409.1556. It
uses the current batch, also in evaluations, on shuffled test images. There is no dropout.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from testbed.models.base import ImageShape, ModelConfig, Network, convolution, dense, pooled

if TYPE_CHECKING:
    from torch import nn

WIDTHS = (32, 32, 64, 64, 128, 128)
HIDDEN = 256


class VggS(ModelConfig):
    """A small network in the manner of VGG; 815,018 parameters on 32x32 colour images.

    Attributes:
        batch_norm: whether to add batch normalisation after convolutions.
    """

    name: Literal["vgg-s"]
    batch_norm: Annotated[bool, Field(strict=True)] = True

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.modules import ModuleNetwork

        self._features(image_shape)
        return ModuleNetwork(lambda: self.module(image_shape, classes))

    def module(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """Build the layers, with initial values from torch's generator."""
        from torch import nn

        from testbed.models.residual import start_as_he

        layers: list[nn.Module] = []
        for i, (inputs, outputs) in enumerate(pairwise((image_shape[0], *WIDTHS))):
            layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            if self.batch_norm:
                layers.append(nn.BatchNorm2d(outputs))
            layers.append(nn.ReLU(inplace=True))
            if i % 2:
                layers.append(nn.MaxPool2d(2))
        layers += [nn.Flatten(), nn.Linear(self._features(image_shape), HIDDEN)]
        layers += [nn.ReLU(inplace=True), nn.Linear(HIDDEN, classes)]
        module = nn.Sequential(*layers)
        start_as_he(module)
        return module

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        total = sum(convolution(*pair) for pair in pairwise((image_shape[0], *WIDTHS)))
        total += 2 * sum(WIDTHS) if self.batch_norm else 0
        return total + dense(self._features(image_shape), HIDDEN, classes)

    def _features(self, image_shape: ImageShape) -> int:
        height, width = pooled(image_shape, 3, model=self.name)
        return WIDTHS[-1] * height * width
