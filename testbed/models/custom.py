"""A network of the user's own: a ``torch.nn.Module`` in a Python file.

    model: {custom: {file: ./net.py, class: Net, width: 64}}

The class is called as ``Net(image_shape, classes, width=64)``, with ``image_shape`` the tuple
(channels, height, width) and every other key of the scenario as a keyword. It maps images (b,
channels, height, width) to scores (b, classes), before any softmax.

    class Net(torch.nn.Module):
        def __init__(self, image_shape, classes, *, width):
            super().__init__()
            channels, height, across = image_shape
            self.hidden = torch.nn.Linear(channels * height * across, width)
            self.score = torch.nn.Linear(width, classes)

        def forward(self, images):
            return self.score(self.hidden(images.flatten(1)).relu())

What is minimised is the mean cross-entropy of the scores. Where a data set has numbers to predict
instead of labels, ``classes`` is 0, outputs are predictions of shape (b,), and it is their mean
squared error. A module with a method ``loss`` has an objective of its own instead, which may well
hold a penalty on its parameters:

    def loss(self, outputs, targets):
        return torch.nn.functional.huber_loss(outputs, targets) + 1e-3 * self.score.weight.norm()

It gives the mean over the batch. Labels still have accuracies beside it; numbers have none.

- The file is copied into the run's folder; it may import installed packages, but no other file.
- Parameters must be float32, and all of them travel. One with ``requires_grad=False`` has a
  gradient of zero. The class's own initialisation decides where training starts, from a seed that
  derives from the scenario's.
- What is no parameter stays where it is. Batch normalisation therefore keeps no running statistics:
  it uses those of the batch at hand, also when the model is evaluated, on mixed test images.
- Other buffers are the same on every node, also where torch draws them: it is seeded alike. A
  module whose forward changes one is refused.
- What is drawn from global generators repeats: they are seeded for every step.
"""

from __future__ import annotations

from pathlib import Path

from testbed.models.base import ImageShape, ModelConfig, Network
from testbed.user_code import OwnCode, UserCode


class CustomModel(ModelConfig, OwnCode):
    """A network of the user's own; every other key is a keyword of the user's class."""

    predicts = None

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        """See the base class; the file is read from the run's ``custom`` folder."""
        return self.build_of(self.copied(folder, "model"), image_shape, classes)

    def build_of(self, code: UserCode, image_shape: ImageShape, classes: int) -> Network:
        """``build``, from the user's code wherever it lies."""
        from testbed.models.own_modules import OwnModuleNetwork

        return OwnModuleNetwork(code, image_shape, classes, options=self.options)
