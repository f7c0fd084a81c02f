"""Whether PyTorch can compute on a GPU of this host."""

from __future__ import annotations

import subprocess
import sys

ASKED = "import sys, torch; sys.exit(not torch.cuda.is_available())"


def has_cuda() -> bool:
    """Ask PyTorch, which takes seconds.

    It is asked in a child process: children of a process that has initialised CUDA cannot use it.
    """
    done = subprocess.run([sys.executable, "-P", "-c", ASKED], capture_output=True, check=False)
    return done.returncode == 0
