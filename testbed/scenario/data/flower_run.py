"""Runs a Flower app from a node of its own, until it ends, and exits with 0 only if it ended well.

``flwr run --stream`` shows the log of the ServerApp, but exits with 0 for an app that failed, too.
This file runs with the user's Python, beside Flower, and needs nothing but the standard library.

Usage: flower_run.py APP ADDRESS [KEY=VALUE ...]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

NAME = "testbed"
MOST_BYTES = 10_000_000  # Flower refuses larger apps
CONNECTION = """\
[superlink]
default = "{name}"

[superlink.{name}]
address = "{address}"
insecure = true
"""


def main(app: str, address: str, *config: str) -> int:
    """Run the app; return 0 if Flower says that it has completed."""
    home = Path(os.environ["FLWR_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    connection = CONNECTION.format(name=NAME, address=address)
    (home / "config.toml").write_text(connection, encoding="utf-8")
    own = home / "app"
    copy(Path(app).resolve(), own)
    chosen = [word for pair in config for word in ("--run-config", pair)]
    run = subprocess.run(["flwr", "run", str(own), NAME, "--stream", *chosen], check=False)
    if run.returncode:
        return run.returncode
    listing = ["flwr", "list", NAME, "--format", "json"]
    found = subprocess.run(listing, check=True, stdout=subprocess.PIPE)
    latest = json.loads(found.stdout)["runs"][0]
    print("The run is", latest["status"], latest.get("status-details", ""), flush=True)
    return 0 if latest["status"] == "finished:completed" else 1


def copy(app: Path, target: Path) -> None:
    """Copy what Flower may pack: it changes the pyproject.toml of older apps before it runs them.

    Hidden folders, folders of runs (this node's home is in one) and large files are left out.
    """
    for folder, inner, names in os.walk(app):
        source = Path(folder)
        inner[:] = [
            name
            for name in inner
            if not name.startswith((".", "__pycache__"))
            and os.access(source / name, os.R_OK | os.X_OK)
            and not (source / name / "plan.json").exists()
        ]
        into = target / source.relative_to(app)
        into.mkdir(parents=True, exist_ok=True)
        for name in names:
            if (source / name).is_file() and (source / name).stat().st_size < MOST_BYTES:
                shutil.copyfile(source / name, into / name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
