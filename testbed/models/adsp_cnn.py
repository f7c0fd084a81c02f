"""The convolutional network of the ADSP paper: 148,298 parameters on CIFAR-10.

H. Hu, D. Wang, C. Wu: Distributed machine learning through heterogeneous edge systems. AAAI 2020,
arXiv:1911.06949. The layers are those of the authors' code, which shortens the network of
TensorFlow's CIFAR-10 tutorial:

    convolution 5x5 -> width, ReLU, max pooling 3x3 by 2, local response normalisation
    convolution 5x5 -> width, ReLU, local response normalisation, max pooling 3x3 by 2
    dense -> classes

Six tensors. Initial weights have normal laws of standard deviation 0.05, 0.05 and 1 / 192,
truncated at two; biases start at 0, 0.1 and 0. The objective is the cross-entropy plus 0.004 / 2
times the squared norm of the three weights.

``classic`` is the tutorial's whole network, 1,756,426 parameters: before the last layer, it has
dense layers of 384 and 192 with ReLU, an initial deviation of 0.04 and biases of 0.1; the penalty
is on the weights of these two only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from testbed.models.base import ImageShape, ModelConfig, Network, convolution, dense, pooled

if TYPE_CHECKING:
    from testbed.models.layers import Linear

DECAY = 0.004
HIDDEN = (384, 192)


class AdspCnn(ModelConfig):
    """The convolutional network of the ADSP paper; 148,298 parameters on 32x32 colour images.

    Attributes:
        width: number of filters of each convolution.
        classic: whether to add the hidden dense layers of TensorFlow's tutorial.
    """

    name: Literal["adsp-cnn"]
    width: Annotated[int, Field(ge=1, le=1024, strict=True)] = 64
    classic: Annotated[bool, Field(strict=True)] = False

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.layers import LayeredNetwork
        from testbed.models.normalised_convolution import NormalisedConvolution

        decay = 0.0 if self.classic else DECAY
        first = NormalisedConvolution("conv1", image_shape[0], self.width, 0.05, decay=decay)
        second = NormalisedConvolution(
            *("conv2", self.width, self.width, 0.05, 0.1), decay=decay, pooled_first=False
        )
        return LayeredNetwork([first, second, *self._dense(self._features(image_shape), classes)])

    def _dense(self, features: int, classes: int) -> list[Linear]:
        from testbed.models.layers import Linear

        if not self.classic:
            return [Linear("dense", features, classes, 1 / 192, decay=DECAY, relu=False)]
        return [
            Linear("dense1", features, HIDDEN[0], 0.04, 0.1, decay=DECAY),
            Linear("dense2", *HIDDEN, 0.04, 0.1, decay=DECAY),
            Linear("dense3", HIDDEN[1], classes, 1 / 192, relu=False),
        ]

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        convolutions = convolution(image_shape[0], self.width, side=5)
        convolutions += convolution(self.width, self.width, side=5)
        hidden = HIDDEN if self.classic else ()
        return convolutions + dense(self._features(image_shape), *hidden, classes)

    def _features(self, image_shape: ImageShape) -> int:
        height, width = pooled(image_shape, 2, model=self.name)
        return self.width * height * width
