"""The import statements of an app, which the processes of a node share."""

from __future__ import annotations

from pathlib import Path

from testbed.scenario.flower import Imports
from testbed.scenario.flower_app import App
from testbed.scenario.flower_imports import imports_of

FILES = {
    "own/__init__.py": "import os\n",
    "own/client.py": (
        "from __future__ import annotations\n"
        "import numpy as np, torch.nn\n"
        "from own.task import load\n"
        "from . import data\n"
        "from flwr.clientapp import ClientApp\n"
        "def later():\n    import pandas\n"
    ),
    "own/task.py": "from .deep.model import Net\n",
    "own/data.py": "this is no Python\n",
    "own/deep/model.py": "from ..task import load\nimport sklearn.svm\n",
    "own/server.py": "import wandb\n",
}


def test_they_are_those_of_other_packages_and_the_app_is_not_run(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    app = App(tmp_path, "app", (), {}, client="own.client:app", server="own.server:app")
    found = imports_of(app)
    assert sorted(found.server) == ["import os", "import wandb"]
    assert sorted(found.client) == [
        "from flwr.clientapp import ClientApp",
        "import numpy as np, torch.nn",
        "import os",
        "import sklearn.svm",
    ]


def test_an_app_without_a_client_has_none(tmp_path: Path) -> None:
    assert imports_of(App(tmp_path, "app", (), {})) == Imports()
    assert imports_of(App(tmp_path, "app", (), {}, client="own.client:app")) == Imports()
