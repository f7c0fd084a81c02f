"""A network of the user's own: a ``torch.nn.Module`` in a Python file.

    model: {name: custom, file: ./net.py, class: Net}

The class is called as ``Net(image_shape, classes)``, with ``image_shape`` the tuple (channels,
height, width), and maps images (b, channels, height, width) to scores (b, classes), before any
softmax.

    class Net(torch.nn.Module):
        def __init__(self, image_shape, classes):
            super().__init__()
            channels, height, width = image_shape
            self.score = torch.nn.Linear(channels * height * width, classes)

        def forward(self, images):
            return self.score(images.flatten(1))

- The file is copied into the run's folder; it may import installed packages, but no other file.
- Parameters must be float32; all of them are trained and travel. The class's own initialisation
  decides where training starts, from a seed that derives from the scenario's.
- What is no parameter stays where it is. Batch normalisation therefore keeps no running statistics:
  it uses those of the batch at hand, also when the model is evaluated.
- Other buffers are the same on every node, also where torch draws them: it is seeded alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from testbed.models.base import ImageShape, ModelConfig, Network
from testbed.user_code import UserCode


class CustomModel(ModelConfig):
    """A network of the user's own.

    Attributes:
        file: the Python file, relative to the scenario's.
        class_name: the class in it, a ``torch.nn.Module``; ``class`` in a scenario.
    """

    name: Literal["custom"]
    file: Annotated[str, Field(pattern=r"[^/]\.py$")]
    class_name: Annotated[str, Field(alias="class", pattern=r"^[A-Za-z_]\w*$")]

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        """See the base class; the file is read from the run's ``custom`` folder."""
        from testbed.models.modules import ModuleNetwork

        path = folder / "custom" / Path(self.file).name
        code = UserCode(path, self.class_name, path_in_scenario="model")
        return ModuleNetwork(code, image_shape, classes)
