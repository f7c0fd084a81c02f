"""Whether PyTorch can compute on a GPU of this host."""

from __future__ import annotations

import subprocess
import sys

ASKED = "import sys, torch; sys.exit(not torch.cuda.is_available())"


def has_cuda() -> bool:
    """Ask PyTorch, which takes seconds.

    Another process asks: one that has spoken to CUDA can fork none that computes there.
    """
    done = subprocess.run([sys.executable, "-P", "-c", ASKED], capture_output=True, check=False)
    return done.returncode == 0
