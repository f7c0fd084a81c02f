"""Networks too large to be trained here, as shapes: what they send, and the memory they take.

ResNet152: K. He et al., CVPR 2016, table 1, with projections where a stage begins. VGG19: K.
Simonyan, A. Zisserman, ICLR 2015, configuration E. Both as torchvision has them, with a thousand
classes, and fed images of 32x32 pixels: VGG's features are brought to 7x7 before its dense layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.payloads.layout import Layout

VALUE_BYTES = 4
OPTIMIZER_STATES = {"sgd": 0, "nesterov": 1, "adam": 2}
"""Values that an optimizer keeps of each parameter."""


@dataclass(frozen=True)
class Shape:
    """A network's tensors.

    Attributes:
        layout: names and shapes of its parameters.
        activations: values that an image leaves for the backward pass: what every convolution,
            normalisation, pooling and dense layer gives; relu takes their place.
    """

    layout: Layout
    activations: int

    @property
    def dense_bytes(self) -> int:
        """A gradient, as it is."""
        return VALUE_BYTES * self.layout.size

    def training_bytes(self, batch: int, optimizer: str) -> int:
        """Memory of a step: parameters, gradient, the optimizer's states, activations."""
        copies = 2 + OPTIMIZER_STATES[optimizer]
        return VALUE_BYTES * (copies * self.layout.size + batch * self.activations)


@dataclass
class _Parts:
    """Collects tensors and activations, layer by layer; ``side``: pixels of what comes out."""

    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    activations: int = 0

    def convolution(
        self, name: str, inputs: int, outputs: int, *, kernel: int, side: int, bias: bool = False
    ) -> None:
        self.tensors[f"{name}.weight"] = (outputs, inputs, kernel, kernel)
        if bias:
            self.tensors[f"{name}.bias"] = (outputs,)
        self.activations += outputs * side**2

    def normalised(self, name: str, inputs: int, outputs: int, *, kernel: int, side: int) -> None:
        """A convolution without biases, and its normalisation."""
        self.convolution(f"{name}.conv", inputs, outputs, kernel=kernel, side=side)
        self.tensors[f"{name}.norm.weight"] = self.tensors[f"{name}.norm.bias"] = (outputs,)
        self.activations += outputs * side**2

    def pooling(self, channels: int, *, side: int) -> None:
        self.activations += channels * side**2

    def dense(self, name: str, inputs: int, outputs: int) -> None:
        self.tensors[f"{name}.weight"] = (outputs, inputs)
        self.tensors[f"{name}.bias"] = (outputs,)
        self.activations += outputs

    def shape(self) -> Shape:
        layout = Layout(tuple(self.tensors), tuple(self.tensors.values()))
        return Shape(layout, self.activations)


def resnet152(side: int = 32, classes: int = 1000) -> Shape:
    """60,192,808 parameters."""
    parts = _Parts()
    side //= 2
    parts.normalised("stem", 3, 64, kernel=7, side=side)
    side //= 2
    parts.pooling(64, side=side)
    inputs = 64
    for stage, (blocks, width) in enumerate(((3, 64), (8, 128), (36, 256), (3, 512))):
        for block in range(blocks):
            name, before = f"stage{stage}.block{block}", side
            if block == 0 and stage:
                side = max(1, side // 2)
            parts.normalised(f"{name}.reduce", inputs, width, kernel=1, side=before)
            parts.normalised(f"{name}.middle", width, width, kernel=3, side=side)
            parts.normalised(f"{name}.expand", width, 4 * width, kernel=1, side=side)
            if block == 0:
                parts.normalised(f"{name}.shortcut", inputs, 4 * width, kernel=1, side=side)
            inputs = 4 * width
    parts.pooling(inputs, side=1)
    parts.dense("dense", inputs, classes)
    return parts.shape()


def vgg19(side: int = 32, classes: int = 1000) -> Shape:
    """143,667,240 parameters."""
    parts = _Parts()
    inputs = 3
    for stage, (convolutions, width) in enumerate(
        ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))
    ):
        for number in range(convolutions):
            name = f"stage{stage}.conv{number}"
            parts.convolution(name, inputs, width, kernel=3, side=side, bias=True)
            inputs = width
        side = max(1, side // 2)
        parts.pooling(width, side=side)
    parts.pooling(inputs, side=7)
    for number, (features, outputs) in enumerate(
        ((49 * inputs, 4096), (4096, 4096), (4096, classes))
    ):
        parts.dense(f"dense{number}", features, outputs)
    return parts.shape()
