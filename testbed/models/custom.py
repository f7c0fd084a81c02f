"""A user-defined network: a ``torch.nn.Module`` in a Python file.

    model: {custom: {file: ./net.py, class: Net, width: 64}}

The class is called as ``Net(image_shape, classes, width=64)``, with ``image_shape`` the tuple
(channels, height, width) and every other key of the scenario as a keyword argument. It maps images
(b, channels, height, width) to scores (b, classes), before any softmax.

    class Net(torch.nn.Module):
        def __init__(self, image_shape, classes, *, width):
            super().__init__()
            channels, height, across = image_shape
            self.hidden = torch.nn.Linear(channels * height * across, width)
            self.score = torch.nn.Linear(width, classes)

        def forward(self, images):
            return self.score(self.hidden(images.flatten(1)).relu())

The objective is the mean cross-entropy of the scores. If a data set has numbers to predict instead
of labels, ``classes`` is 0, outputs are predictions of shape (b,), and the objective is their mean
squared error. A module with a ``loss`` method has its own objective instead, which may include a
penalty on its parameters:

    def loss(self, outputs, targets):
        return torch.nn.functional.huber_loss(outputs, targets) + 1e-3 * self.score.weight.norm()

It returns the mean over the batch. With labels, accuracies are still computed; with numbers, not.

If a data set has tokens, ``image_shape`` is (length,), and the module gets int64 (b, length). If
the targets are tokens too, one for each position, it returns scores of shape (b, length, classes);
the objective is the mean cross-entropy over the targets that are not -100.

- The file is copied into the run folder; it may import installed packages, but no other file.
- Parameters must be float32, and all of them are sent. A parameter with ``requires_grad=False`` has
  a gradient of zero. The class's own initialisation gives the initial values, with a seed derived
  from the scenario's.
- Only parameters are sent. Batch normalisation therefore keeps no running statistics: it uses the
  current batch, also in evaluations, on shuffled test images. With ``buffers: averaged``, running
  statistics and other float32 buffers that training changes are sent and averaged too; with
  ``buffers: local`` and ``fedbn``, workers keep them.
- Other buffers are the same on every node, even if torch draws them: it has the same seed. Without
  ``buffers: averaged``, a module is refused if its forward pass changes a buffer.
- Draws from global generators are reproducible: they are seeded for every step.
"""

from __future__ import annotations

from pathlib import Path

from testbed.models.base import Buffers, ImageShape, ModelConfig, Network
from testbed.values.user_code import OwnCode, UserCode


class CustomModel(ModelConfig, OwnCode):
    """A user-defined network; every other key is a keyword argument of the user's class.

    Attributes:
        buffers: of normalisation layers, and others that training changes. ``dropped``: layers use
            the statistics of the current batch, also in evaluations, and other buffers may not
            change. ``averaged``: they are sent and averaged like parameters, and evaluations use
            the averages. ``local``: each worker keeps the statistics of its normalisation layers,
            and evaluates with them. ``fedbn``: likewise all of its batch normalisation layers,
            scale and shift included.
    """

    reads = None
    predicts = None

    buffers: Buffers = "dropped"

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        """Build the network; reads the file from the run's ``custom`` folder."""
        return self.build_of(self.copied(folder, "model"), image_shape, classes)

    def build_of(self, code: UserCode, image_shape: ImageShape, classes: int) -> Network:
        """Build the network from the user's code in any location."""
        from testbed.models.own_modules import OwnModuleNetwork

        return OwnModuleNetwork(
            code, image_shape, classes, options=self.options, buffers=self.buffers
        )
